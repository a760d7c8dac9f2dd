use super::*;

/// The `i`th of many different words: letters of `i`, then `om`.
fn word(i: usize) -> String {
    let letter = |n: usize| char::from(b'a' + u8::try_from(n % 26).unwrap());
    [i, i / 26, i / 676, i / 17_576]
        .map(letter)
        .iter()
        .collect::<String>()
        + "om"
}

/// Different words, ten to a sentence, a sentence to a line.
fn prose(words: std::ops::Range<usize>) -> String {
    let end = |i: usize| if i % 10 == 9 { ".\n" } else { " " };
    words.map(|i| word(i) + end(i)).collect()
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ").trim().to_owned() + "\n"
}

fn check_with(limits: &QualityConfig, text: &str, expected: Option<&str>) {
    let found = fault(text, limits);
    let limit = found.as_ref().map(|(limit, _)| *limit);
    assert_eq!(limit, expected, "{found:?}: {text}");
}

fn check(text: &str, expected: &str) {
    check_with(&QualityConfig::default(), text, Some(expected));
}

#[test]
fn plain_prose_passes_every_filter() {
    for words in [50, 60, 5000, 100_000] {
        check_with(&QualityConfig::default(), &prose(0..words), None);
    }
}

#[test]
fn sizes_and_words_are_held_to_their_limits() {
    let text = prose(0..60);
    check("", "min_words");
    check(&prose(0..49), "min_words");
    check(&prose(0..100_001), "max_words");
    check(&text.replace("aaom", ""), "min_mean_word");
    check(&text.replace("om", "omomomom"), "max_mean_word");
    check(
        &format!("{}{}.", prose(0..600), "x".repeat(1001)),
        "max_word",
    );
    check(&format!("{text}{}", "# ".repeat(7)), "max_symbols");
    check(&format!("{text}{}", "... ".repeat(7)), "max_symbols");
    let numbers: String = (0..16).map(|i| format!("{} ", 10_000 + i)).collect();
    check(&format!("{text}{numbers}"), "min_alphabetic_words");
    check(&text.replace('.', ""), "min_sentences");
    let limits = QualityConfig {
        min_characters: 1000,
        ..QualityConfig::default()
    };
    check_with(&limits, &text, Some("min_characters"));
    let limits = QualityConfig {
        max_characters: Some(100),
        ..QualityConfig::default()
    };
    check_with(&limits, &text, Some("max_characters"));
}

#[test]
fn lines_are_held_to_their_limits() {
    let text = prose(0..60);
    let bullets: String = text.lines().map(|line| format!("• {line}\n")).collect();
    check(&bullets, "max_bullet_lines");
    check(&bullets.replace('•', "-"), "max_bullet_lines");
    check(&text.replace(".\n", "…\n"), "max_ellipsis_lines");
    let open = prose(60..160).replace('.', "");
    check(
        &format!("{}{open}", one_line(&text)),
        "min_punctuated_lines",
    );
    let short: String = (0..60)
        .map(|i| word(i) + if i % 3 == 2 { ".\n" } else { " " })
        .collect();
    check(&short, "max_short_lines");
    check(&text.replace('\n', "\n\n\n\n"), "max_line_breaks");
}

#[test]
fn repetitions_are_held_to_their_limits() {
    let text = prose(0..60);
    let first = prose(0..10);
    check(&format!("{text}{}", first.repeat(3)), "max_repeated_lines");
    let long = one_line(&prose(100..130));
    check(
        &format!("{long}{text}{long}"),
        "max_repeated_line_characters",
    );
    let short = "Yes indeed, again.\n\n";
    check(
        &format!("{text}\n{short}{short}"),
        "max_repeated_paragraphs",
    );
    let limits = QualityConfig {
        max_repeated_line_characters: 1.0,
        max_repeated_lines: 1.0,
        ..QualityConfig::default()
    };
    let paragraphs = format!("{text}\n{long}\n{}\n{long}", prose(200..220));
    check_with(
        &limits,
        &paragraphs,
        Some("max_repeated_paragraph_characters"),
    );
    let top: String = (0..60)
        .map(|i| word(i) + if i % 3 == 0 { " and the same. " } else { " " })
        .collect();
    check(&format!("{top}."), "max_top_ngrams");
    let again = one_line(&text) + &one_line(&prose(0..20));
    check(&one_line(&again), "max_repeated_ngrams");
}

#[test]
fn no_filter_knows_a_language() {
    let limits = QualityConfig {
        min_words: 20,
        min_sentences: 3,
        ..QualityConfig::default()
    };
    let texts = [
        "今天早上我去了图书馆。那里的人很多，座位都满了！后来我在窗边找到一个位置，读了两个小时的书。你下次也一起来吧？",
        "เมื่อเช้านี้ฉันไปห้องสมุดกับเพื่อน ที่นั่นมีคนเยอะมากจนไม่มีที่นั่ง เราเลยกลับบ้านแล้วอ่านหนังสือในสวน",
        "आज सुबह मैं पुस्तकालय गया था। वहाँ बहुत सारे लोग बैठे हुए थे। बाद में मुझे खिड़की के पास एक खाली जगह मिली और मैंने दो घंटे तक किताब पढ़ी।",
        "ذهبت صباح اليوم إلى المكتبة العامة. كان هناك كثير من الناس ولم أجد مقعدا! بعد ذلك جلست قرب النافذة وقرأت كتابا عن التاريخ. هل تأتي معي غدا؟",
        "Сегодня утром я ходил в библиотеку. Там было много людей, и мест не было! Потом я нашёл стул у окна и два часа читал книгу. Придёшь завтра?",
    ];
    for text in texts {
        check_with(&limits, text, None);
    }
    check_with(
        &limits,
        &"今天早上我去了图书馆。".repeat(8),
        Some("max_top_ngrams"),
    );
}

#[test]
fn every_filter_can_be_switched_off() {
    let off = QualityConfig {
        min_words: 0,
        max_words: u64::MAX,
        min_characters: 0,
        max_characters: None,
        min_mean_word: 0.0,
        max_mean_word: f64::MAX,
        max_word: u64::MAX,
        max_symbols: f64::MAX,
        max_bullet_lines: 1.0,
        max_ellipsis_lines: 1.0,
        min_alphabetic_words: 0.0,
        min_sentences: 0,
        min_punctuated_lines: 0.0,
        max_short_lines: 1.0,
        max_line_breaks: f64::MAX,
        max_repeated_lines: 1.0,
        max_repeated_line_characters: 1.0,
        max_repeated_paragraphs: 1.0,
        max_repeated_paragraph_characters: 1.0,
        max_top_ngrams: [f64::MAX; 3],
        max_repeated_ngrams: [1.0; 6],
    };
    for text in [
        "",
        "#",
        "...\n...",
        "a a a a a a a a a a a",
        "• x\n• x\n\n• x\n• x",
    ] {
        check_with(&off, text, None);
    }
}
