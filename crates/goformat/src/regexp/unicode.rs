//! Characters by their Unicode properties, under the names that Go knows, and their case folding.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};
use std::sync::LazyLock;

/// General categories, by all names.
const CATEGORIES: &str = "\
    c cc cf cn co cs l lc ll lm lo lt lu m mc me mn n nd nl no p pc pd pe pf pi po ps s sc sk sm so z zl zp zs \
    casedletter closepunctuation cntrl combiningmark connectorpunctuation control currencysymbol dashpunctuation \
    decimalnumber digit enclosingmark finalpunctuation format initialpunctuation letter letternumber lineseparator \
    lowercaseletter mark mathsymbol modifierletter modifiersymbol nonspacingmark number openpunctuation other \
    otherletter othernumber otherpunctuation othersymbol paragraphseparator privateuse punct punctuation separator \
    spaceseparator spacingmark surrogate symbol titlecaseletter unassigned uppercaseletter";

/// Scripts. Go 1.26 does not find those whose names have several words, such as `Old_Italic`.
const SCRIPTS: &str = "\
    adlam ahom arabic armenian avestan balinese bamum batak bengali bhaiksuki bopomofo brahmi braille buginese buhid \
    carian chakma cham cherokee chorasmian common coptic cuneiform cypriot cyrillic deseret devanagari dogra duployan \
    elbasan elymaic ethiopic georgian glagolitic gothic grantha greek gujarati gurmukhi han hangul hanunoo hatran \
    hebrew hiragana inherited javanese kaithi kannada katakana kawi kharoshthi khmer khojki khudawadi lao latin lepcha \
    limbu lisu lycian lydian mahajani makasar malayalam mandaic manichaean marchen medefaidrin miao modi mongolian mro \
    multani myanmar nabataean nandinagari newa nko nushu ogham oriya osage osmanya palmyrene phoenician rejang runic \
    samaritan saurashtra sharada shavian siddham sinhala sogdian soyombo sundanese syriac tagalog tagbanwa takri tamil \
    tangsa tangut telugu thaana thai tibetan tifinagh tirhuta toto ugaritic vai vithkuqi wancho yezidi yi";

/// Returns the characters of a property as Go names it: a category (`Lu`, `Uppercase_Letter`), a
/// script (`Greek`), `Any`, `Assigned` or `ASCII`. Case, spaces, hyphens and underscores do not
/// count.
pub(super) fn named(name: &str) -> Option<ClassUnicode> {
    let plain: String = name
        .chars()
        .filter(|c| !matches!(c, '_' | '-' | ' '))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let is_in = |names: &str| names.split(' ').any(|known| known == plain);
    match plain.as_str() {
        "any" => Some(any(true)),
        "ascii" => Some(ClassUnicode::new([ClassUnicodeRange::new('\0', '\u{7f}')])),
        "assigned" => {
            let mut class = property("gc=cn");
            class.negate();
            Some(class)
        }
        // Text in UTF-8 has none.
        "cs" | "surrogate" => Some(ClassUnicode::empty()),
        _ if is_in(CATEGORIES) => Some(property(&format!("gc={plain}"))),
        _ if is_in(SCRIPTS) => Some(property(&format!("sc={plain}"))),
        _ => None,
    }
}

/// Returns all characters, or all but a newline.
pub(super) fn any(newline: bool) -> ClassUnicode {
    let all = ('\0', char::MAX);
    let others = [('\0', '\u{9}'), ('\u{b}', char::MAX)];
    let ranges: &[(char, char)] = if newline { &[all] } else { &others };
    ClassUnicode::new(ranges.iter().map(|(low, high)| ClassUnicodeRange::new(*low, *high)))
}

/// Pairs of a character and another case of it, in order. The cased letters have other cases, and
/// some characters outside of them.
static OTHER_CASES: LazyLock<Vec<(char, char)>> = LazyLock::new(|| {
    let mut cased = property("gc=lc");
    let others = [
        ('\u{345}', '\u{345}'),
        ('\u{2160}', '\u{2188}'),
        ('\u{24b6}', '\u{24e9}'),
    ];
    let others = others.map(|(low, high)| ClassUnicodeRange::new(low, high));
    cased.union(&ClassUnicode::new(others));
    let mut pairs = Vec::new();
    for c in cased.iter().flat_map(|range| range.start()..=range.end()) {
        let mut cases = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
        cases.case_fold_simple();
        let cases = cases.iter().flat_map(|range| range.start()..=range.end());
        pairs.extend(cases.filter(|other| *other != c).map(|other| (c, other)));
    }
    pairs
});

/// Returns the other cases of the characters of a class.
pub(super) fn other_cases(class: &ClassUnicode) -> Vec<ClassUnicodeRange> {
    let of = |range: &ClassUnicodeRange| {
        let first = OTHER_CASES.partition_point(|(c, _)| *c < range.start());
        let after = OTHER_CASES.partition_point(|(c, _)| *c <= range.end());
        OTHER_CASES.get(first..after).unwrap_or_default()
    };
    let pairs = class.ranges().iter().flat_map(of);
    pairs.map(|(_, other)| ClassUnicodeRange::new(*other, *other)).collect()
}

/// Returns a character with its other cases.
pub(super) fn folded(c: char) -> ClassUnicode {
    let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
    class.union(&ClassUnicode::new(other_cases(&class)));
    class
}

/// Returns the characters of a property, which must be one of the tables.
fn property(query: &str) -> ClassUnicode {
    let parsed = regex_syntax::parse(&format!("\\p{{{query}}}"));
    match parsed.map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => class,
        // A property of a single character is a literal.
        Ok(HirKind::Literal(literal)) => {
            let text = std::str::from_utf8(&literal.0).unwrap_or("");
            ClassUnicode::new(text.chars().map(|c| ClassUnicodeRange::new(c, c)))
        }
        parsed => {
            debug_assert!(false, "{query}: {parsed:?}");
            ClassUnicode::empty()
        }
    }
}
