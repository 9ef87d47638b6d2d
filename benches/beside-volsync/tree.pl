# tree.pl TREE FOLDER: makes a tree of the comparison in a folder, or changes a hundredth of it (TREE-changed).
use strict;
use warnings;

my ($what, $folder) = @ARGV;
my ($tree, $changed) = $what =~ /^(\w+)(-changed)?$/ or die "which tree is $what?\n";
open my $random, '<', '/dev/urandom' or die "cannot read /dev/urandom: $!\n";
binmode $random;

sub bytes { read $random, my $bytes, shift; $bytes }

if ($tree eq 'large') {
    open my $file, $changed ? '+<' : '>', "$folder/image" or die "cannot write $folder/image: $!\n";
    binmode $file;
    if ($changed) {
        # A hundredth, in 168 places of 64 KiB.
        for my $place (0 .. 167) { seek $file, $place * 6_390_000, 0; print $file bytes(65536) }
    } else {
        print $file bytes(1 << 20) for 1 .. 1024;
    }
    close $file or die "cannot write $folder/image: $!\n";
    exit;
}
my ($folders, $files, $size) = $tree eq 'small' ? (16, 63, 20480) : (500, 100, 1024);
for my $in (1 .. $folders) {
    mkdir "$folder/d$in";
    for my $number (1 .. $files) {
        next if $changed && ($in * $files + $number) % 100;
        open my $file, '>', "$folder/d$in/f$number" or die "cannot write $folder/d$in/f$number: $!\n";
        print $file bytes($size);
        close $file or die "cannot write $folder/d$in/f$number: $!\n";
    }
}
