//! Owners as they are typed, by names of this machine or by numbers.

use std::fs;

use contract::Chown;

/// Parses `USER`, `USER:GROUP` or `:GROUP`. Names are those of the files in `/etc`, because a static program has no
/// other source of names.
pub(super) fn owner(text: &str) -> Result<Chown, String> {
    let (user, group) = text.split_once(':').map_or((text, ""), |(user, group)| (user, group));
    let chown =
        Chown { uid: number_of(user, "/etc/passwd", "user")?, gid: number_of(group, "/etc/group", "group")? };
    match chown {
        Chown { uid: None, gid: None } => Err("write USER, USER:GROUP or :GROUP".into()),
        chown => Ok(chown),
    }
}

fn number_of(name: &str, path: &str, kind: &str) -> Result<Option<u32>, String> {
    if name.is_empty() {
        return Ok(None);
    }
    // The last number stands for no change.
    if let Some(number) = name.parse().ok().filter(|number| *number != u32::MAX) {
        return Ok(Some(number));
    }
    let table = fs::read_to_string(path).unwrap_or_default();
    number_in(&table, name)
        .map(Some)
        .ok_or_else(|| format!("{path} has no {kind} {name:?}: write its number"))
}

/// Finds a name in the lines of a table: name, password and number are the first fields.
fn number_in(table: &str, name: &str) -> Option<u32> {
    let fields = |line: &str| line.split(':').map(String::from).collect::<Vec<_>>();
    let line = table.lines().map(fields).find(|fields| fields.first().is_some_and(|its| its == name))?;
    line.get(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_a_user_a_group_or_both() {
        let chown = |uid, gid| Ok(Chown { uid, gid });
        assert_eq!(owner("7"), chown(Some(7), None));
        assert_eq!(owner("7:8"), chown(Some(7), Some(8)));
        assert_eq!(owner(":8"), chown(None, Some(8)));
        assert_eq!(owner("root:root"), chown(Some(0), Some(0)));
        for bad in ["", ":", "no such user", ":no such group", "4294967295", "-1", "1:2:3"] {
            assert!(owner(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_name_is_the_first_field_of_its_line() {
        let table = "a:x:1:9::/:/bin/sh\nab:x:2:9\nbroken\nz:x:no\n";
        assert_eq!((number_in(table, "ab"), number_in(table, "a")), (Some(2), Some(1)));
        assert_eq!(
            (number_in(table, "z"), number_in(table, "broken"), number_in(table, "x")),
            (None, None, None)
        );
    }
}
