//! Images that a pipeline file augments and mixes, and the lines that say so.

use std::fs;

use crate::support::{pipeline, run, shared_data};

#[test]
fn a_pipeline_file_augments_and_mixes_and_the_screen_and_the_record_say_so() {
    let Some(photos) = shared_data("images/photos") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for (i, entry) in fs::read_dir(photos).unwrap().enumerate() {
        let path = entry.unwrap().path();
        let album = folder.path().join("album").join(["odd", "even"][i % 2]);
        fs::create_dir_all(&album).unwrap();
        fs::copy(&path, album.join(path.file_name().unwrap())).unwrap();
    }
    let text = "[pipeline]\nname = \"album\"\nroot = \"out\"\n\
         [[source]]\nname = \"album\"\ntype = \"files\"\nformat = \"image\"\nurl = \"album\"\n\
         [dataset]\nkind = \"images\"\ntarget = \"folder\"\ntask = \"classification\"\n\
         image = { store = \"jpeg\", resize = \"crop\", size = 40 }\n\
         split = { train = 0.6, validation = 0.2, test = 0.2 }\n\
         [train]\nmodel = { type = \"cnn\", channels = [4], hidden = [8] }\nbatch_size = 8\nepochs = 1\n\
         [train.images]\nheight = 32\nwidth = 32\n\
         augment = [{ type = \"random_resized_crop\" }, { type = \"rand_augment\" }, { type = \"cutout\", side = 8 }]\n\
         mix = { mixup = 0.5, cutmix = 0.5 }\n\
         [train.loader]\nbalance = \"equal\"\n";
    let file = pipeline(folder.path(), text);
    let said = run(folder.path(), &["run", file]).expect(0).stdout;
    for line in [
        "normalised by mean",
        "of the training split",
        "mixed in pairs",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let runs = fs::read_dir(folder.path().join("out/train")).unwrap();
    let records =
        runs.filter_map(|run| fs::read_to_string(run.unwrap().path().join("run.json")).ok());
    let records: Vec<_> = records.collect();
    let [record] = &records[..] else {
        panic!("{records:?}")
    };
    let record: serde_json::Value = serde_json::from_str(record).unwrap();
    assert_eq!(record["images"]["normalized_by"], "dataset");
    assert_eq!(record["images"]["mixed"], true);
    let plan = run(folder.path(), &["plan", file, "--json"])
        .expect(0)
        .json();
    assert!(plan["train"]["steps"].as_u64() > Some(0), "{plan}");
    let wrong = text.replace("side = 8", "side = 0");
    let error = run(folder.path(), &["train", pipeline(folder.path(), &wrong)]).expect(2);
    assert!(
        error.stderr.contains("train.images.augment.2.side"),
        "{error:?}"
    );
}
