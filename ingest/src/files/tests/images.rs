use feedline_schemas::config::FileFormat;

use super::{Folder, gzip, records};

#[tokio::test]
async fn a_folder_gives_its_image_files_in_the_order_of_their_names() {
    let folder = Folder::new(&[
        ("d/dog/2.PNG", b"2"),
        ("d/cat/1.jpg", b"1"),
        ("d/LICENSE", b"free"),
        ("d/cat/3.webp.gz", &gzip(b"3")),
    ]);
    let mut config = folder.source("d");
    config.format = FileFormat::Image;
    let found = records(&config).await;
    let paths = ["cat/1.jpg", "cat/3.webp.gz", "dog/2.PNG"];
    assert_eq!(found.len(), paths.len());
    for (record, path) in found.iter().zip(paths) {
        assert!(record.contains(&format!(r#""path":"{path}""#)), "{record}");
    }
    // Texts have the same columns, also for several documents of a file.
    let folder = Folder::new(&[("d/spam/1.txt", b"a--b"), ("d/2.txt", b"c")]);
    let mut config = folder.source("d/**/*.txt");
    config.format = FileFormat::Text;
    config.text.separator = Some("--".to_owned());
    let expected = [
        r#"{"folder":null,"path":"2.txt","text":"c"}"#,
        r#"{"folder":"spam","path":"spam/1.txt","text":"a"}"#,
        r#"{"folder":"spam","path":"spam/1.txt","text":"b"}"#,
    ];
    assert_eq!(records(&config).await, expected);
    let folder = Folder::new(&[
        ("d/dog/2.PNG", b"2"),
        ("d/cat/1.jpg", b"1"),
        ("d/LICENSE", b"free"),
    ]);
    // A pattern decides which files are images.
    let mut config = folder.source("d/*");
    config.format = FileFormat::Image;
    assert_eq!(records(&config).await.len(), 1);
}
