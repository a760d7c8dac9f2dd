use feedline_schemas::{
    commit::Position,
    config::{FileFormat, FilesChanged, SourceConfig},
};

use super::{Folder, gzip, pages, records, refused};

fn idx(dimensions: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, u8::try_from(dimensions.len()).unwrap()];
    bytes.extend(dimensions.iter().flat_map(|d| d.to_be_bytes()));
    bytes.extend(values);
    bytes
}

/// Three images of 1 x 2 pixels, and their labels.
fn pair() -> (Vec<u8>, Vec<u8>) {
    (
        idx(&[3, 1, 2], &[0, 1, 16, 17, 254, 255]),
        idx(&[3], &[9, 0, 255]),
    )
}

fn source(folder: &Folder, images: &str, labels: Option<&str>) -> SourceConfig {
    let mut config = folder.source(images);
    config.format = FileFormat::Idx;
    config.idx.labels = labels.map(|name| folder.path(name));
    config
}

/// A record as it should be: header of the image's file, pixels as hexadecimal digits, label.
fn record(header: &str, pixels: &str, label: Option<u8>) -> String {
    let header: String = header.bytes().map(|b| format!("{b:02x}")).collect();
    let label = label.map_or(String::new(), |label| format!(r#","label":{label}"#));
    format!(r#"{{"image":"{header}{pixels}"{label}}}"#)
}

async fn check_refused(images: &[u8], labels: &[u8], expected: &str) {
    let folder = Folder::new(&[("p", images), ("l", labels)]);
    let error = refused(&source(&folder, "p", Some("l"))).await;
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn images_are_whole_files_with_their_labels() {
    let (images, labels) = pair();
    let folder = Folder::new(&[("p.gz", &gzip(&images)), ("l", &labels)]);
    let header = "P5\n2 1\n255\n";
    let with = |label: fn(u8) -> Option<u8>| {
        [("0001", 9), ("1011", 0), ("feff", 255)]
            .map(|(pixels, class)| record(header, pixels, label(class)))
    };
    let config = source(&folder, "p.gz", Some("l"));
    assert_eq!(records(&config).await, with(Some));
    let config = source(&folder, "p.gz", None);
    assert_eq!(records(&config).await, with(|_| None));
    let colour = idx(&[1, 1, 1, 3], &[1, 2, 3]);
    let folder = Folder::new(&[("p", &colour)]);
    let expected = [record("P6\n1 1\n255\n", "010203", None)];
    assert_eq!(records(&source(&folder, "p", None)).await, expected);
}

#[tokio::test]
async fn a_file_that_is_not_whole_lands_nothing() {
    let (images, labels) = pair();
    let cut = &images[..images.len() - 1];
    check_refused(cut, &labels, "it ends after 5 of 6 bytes of images").await;
    check_refused(
        &gzip(cut),
        &labels,
        "it does not begin with two zero bytes, so it is no idx file",
    )
    .await;
    let long = [&images[..], &[0]].concat();
    check_refused(&long, &labels, "it has data after its last byte of images").await;
    check_refused(&images[..10], &labels, "its header cannot be read").await;
    check_refused(&images, &labels[..10], "ends after 2 of 3 bytes of labels").await;
    let other = idx(&[2], &[1, 2]);
    check_refused(&images, &other, "they are 2, and there are 3 images").await;
    check_refused(&labels, &labels, "is it the file of labels?").await;
    check_refused(&images, &images, "is it the file of images?").await;
    let floats = [&[0, 0, 13, 3], &images[4..]].concat();
    check_refused(&floats, &labels, "of type 0x0d").await;
    let huge = idx(&[1, 16_384, 16_384], &[]);
    check_refused(&huge, &labels, "at most 67108864 bytes").await;
    let empty = idx(&[1, 0, 5], &[]);
    check_refused(&empty, &labels, "sides are 1 to 16384").await;
}

#[tokio::test]
async fn reading_goes_on_between_images_and_changed_labels_are_read_again_or_refused() {
    let (images, labels) = pair();
    let folder = Folder::new(&[("p", &images), ("l", &labels)]);
    let mut config = source(&folder, "p", Some("l"));
    config.batch.rows = feedline_schemas::config::Bounded::literal::<1>();
    let whole = pages(&config, Position::Start).await.unwrap();
    assert_eq!(whole.len(), 3);
    for (i, (_, position)) in whole.iter().enumerate().take(2) {
        let rest = pages(&config, position.clone()).await.unwrap();
        assert_eq!(rest, whole[i + 1..], "after page {i}");
    }
    folder.write("l", &idx(&[3], &[9, 1, 255]));
    // By default the images are re-read from the first.
    let again = pages(&config, whole[0].1.clone()).await.unwrap();
    assert_eq!(again.len(), 3);
    config.files.changed = FilesChanged::Refuse;
    let error = pages(&config, whole[0].1.clone()).await.unwrap_err();
    assert!(error.to_string().contains("it has changed"), "{error}");
}

#[tokio::test]
async fn labels_belong_to_one_file_that_is_there() {
    let (images, _) = pair();
    let folder = Folder::new(&[("p1", &images), ("p2", &images)]);
    let error = refused(&source(&folder, "p?", Some("l"))).await;
    assert!(error.contains("`url` matches 2 files"), "{error}");
    let error = refused(&source(&folder, "p1", Some("l"))).await;
    assert!(error.starts_with("`idx.labels`: file"), "{error}");
}

#[tokio::test]
async fn labels_that_are_a_socket_are_refused() {
    let (images, _) = pair();
    let folder = Folder::new(&[("p", &images)]);
    let _socket = std::os::unix::net::UnixListener::bind(folder.path("l")).unwrap();
    let error = refused(&source(&folder, "p", Some("l"))).await;
    assert!(error.starts_with("`idx.labels`: "), "{error}");
    assert!(error.contains("l` is a pipe, socket or device"), "{error}");
}
