//! Spellings of names in a protobuf file.

/// Returns true for `GetWorkspace`.
pub(crate) fn is_pascal(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric())
}

/// Returns true for `page_token`.
pub(crate) fn is_lower_snake(name: &str) -> bool {
    let word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.split('_').all(word)
}

/// Returns true for `PHASE_READY`.
pub(crate) fn is_upper_snake(name: &str) -> bool {
    !name.chars().any(|c| c.is_ascii_lowercase()) && is_lower_snake(&name.to_ascii_lowercase())
}

/// Returns the words of a Pascal name in capitals: `MigrationStep` gives `MIGRATION_STEP`.
pub(crate) fn upper_snake(pascal: &str) -> String {
    let letters: Vec<char> = pascal.chars().collect();
    let mut out = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| letters[before]);
        let after = letters.get(index + 1);
        let begins = letter.is_ascii_uppercase()
            && before.is_some_and(|before| !before.is_ascii_uppercase() || after.is_some_and(char::is_ascii_lowercase));
        if begins {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}

#[test]
fn names_in_examples() {
    assert!(is_pascal("GetV1Info") && !is_pascal("get") && !is_pascal("Get_Info"));
    assert!(
        is_lower_snake("x1_by") && !is_lower_snake("pageToken") && !is_lower_snake("a__b") && !is_lower_snake("_a")
    );
    assert!(is_upper_snake("A_B2") && !is_upper_snake("A_b"));
    assert_eq!(upper_snake("MigrationStep"), "MIGRATION_STEP");
    assert_eq!(upper_snake("HTTPMode"), "HTTP_MODE");
}
