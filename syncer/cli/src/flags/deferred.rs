//! Flags that are built when their command is typed.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

/// The flags of one command. clap builds the flags of all commands before it reads the first argument, which would take
/// longer than a run that changes nothing.
#[derive(Debug)]
pub(crate) struct Deferred<T>(Box<T>);

impl<T> Deferred<T> {
    /// Returns the flags.
    pub(crate) fn into_inner(self) -> T {
        *self.0
    }
}

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| keeping_about(command, T::augment_args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(|command| keeping_about(command, T::augment_args_for_update))
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(|flags| Self(Box::new(flags)))
    }

    /// Takes the flags out of `matches`. Without this, clap copies all of them first.
    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(|flags| Self(Box::new(flags)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Adds flags to a command that keeps its description, which the doc comments on the types of the flags would replace.
fn keeping_about(command: Command, add: impl FnOnce(Command) -> Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let long_about = command.get_long_about().cloned();
    let command = add(command).about(about);
    match long_about {
        Some(long_about) => command.long_about(long_about),
        None => command.long_about(None::<&'static str>),
    }
}
