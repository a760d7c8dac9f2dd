//! Circles of imports: files of one crate that need each other in a loop.
//!
//! A file imports another one if a path of its code, in a `use` or inline, leads to a definition there. A re-export (`pub use`)
//! is no import of the file that has it: it leads to the file that defines the name. Tests are not read.

use std::collections::{BTreeMap, BTreeSet};

use super::source::lines_of_rust;

/// Path and text of a file.
type SourceFile = (String, String);

/// Segments of a module's or a name's path below the root of its crate.
type Segments = Vec<String>;

/// A file of a crate.
struct Module {
    file: String,
    /// Full paths that its code names.
    paths: Vec<Segments>,
    /// Full paths that it re-exports, by the names it gives them.
    re_exports: Vec<(String, Segments)>,
}

/// One path of a `use`.
struct Use {
    parts: Segments,
    name: String,
    is_re_export: bool,
}

/// Circles of more than `most` files in the crates of `files` (path and text), the files of each sorted.
pub(super) fn circles(files: &[SourceFile], most: usize) -> Vec<Vec<String>> {
    let mut crates: BTreeMap<&str, Vec<(Segments, &SourceFile)>> = BTreeMap::new();
    for file in files {
        if let Some((folder, module)) = module_of(&file.0) {
            crates.entry(folder).or_default().push((module, file));
        }
    }
    let mut found = Vec::new();
    for files in crates.into_values() {
        let known: BTreeSet<Segments> = files.iter().map(|(module, _)| module.clone()).collect();
        let modules: BTreeMap<Segments, Module> = files
            .into_iter()
            .map(|(module, (file, text))| {
                let read = read_module(file, text, &module, &known);
                (module, read)
            })
            .collect();
        found.extend(circles_of(&modules, most));
    }
    found
}

/// Folder of the crate and path of the module of a product file; `None` for tests and other files.
fn module_of(file: &str) -> Option<(&str, Segments)> {
    let path = file.strip_suffix(".rs")?;
    let (folder, path) = match path.strip_prefix("src/") {
        Some(path) => ("", path),
        None => path.split_once("/src/")?,
    };
    let mut module: Segments = path.split('/').map(str::to_owned).collect();
    let last = module.last()?;
    if last == "mod" || module.len() == 1 && ["lib", "main"].contains(&last.as_str()) {
        module.pop();
    }
    let is_test = |part: &String| {
        part.ends_with("tests") || ["testing", "fuzzing", "mock"].contains(&part.as_str())
    };
    (!module.iter().any(is_test)).then_some((folder, module))
}

fn read_module(file: &str, text: &str, module: &[String], known: &BTreeSet<Segments>) -> Module {
    let code: Vec<String> = lines_of_rust(text)
        .into_iter()
        .map(|line| line.code)
        .collect();
    let code = without_tests(code.join("\n"));
    let (uses, code) = split_uses(&code);
    let mut read = Module {
        file: file.to_owned(),
        paths: Vec::new(),
        re_exports: Vec::new(),
    };
    let mut names = BTreeMap::new();
    for one in uses {
        let Some(path) = full_path(&one.parts, module, known) else {
            continue;
        };
        if one.is_re_export {
            read.re_exports.push((one.name.clone(), path.clone()));
        } else {
            read.paths.push(path.clone());
        }
        names.insert(one.name, path);
    }
    for parts in inline_paths(&code) {
        // `loss::mean` after `use crate::loss`.
        let imported = names.get(&parts[0]).filter(|path| known.contains(*path));
        if let Some(imported) = imported {
            read.paths.push([imported, &parts[1..]].concat());
        } else if let Some(path) = full_path(&parts, module, known) {
            read.paths.push(path);
        }
    }
    read
}

/// Code without the items that only tests have.
fn without_tests(mut code: String) -> String {
    const MARKS: [&str; 3] = ["#[cfg(test)]", "#[cfg(any(test", "#[cfg(all(test"];
    while let Some(start) = MARKS.iter().filter_map(|mark| code.find(mark)).min() {
        let end = end_of_item(&code[start..]);
        code.replace_range(start..start + end, "");
    }
    code
}

/// Length of the item at the start of `code`, with its attributes: up to `;` or to the end of its braces.
fn end_of_item(code: &str) -> usize {
    let (mut braces, mut others) = (0_usize, 0_usize);
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' => others += 1,
            b')' | b']' => others = others.saturating_sub(1),
            b'{' => braces += 1,
            b'}' => {
                braces = braces.saturating_sub(1);
                let rest = code[at + 1..].trim_start();
                // The braces of a `use` are followed by `;`.
                if braces == 0 && others == 0 && !rest.starts_with(';') {
                    return at + 1;
                }
            }
            b';' if braces == 0 && others == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Paths of the `use` items, and the code without them.
fn split_uses(code: &str) -> (Vec<Use>, String) {
    let (mut uses, mut rest) = (Vec::new(), String::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let (visibility, item) = visibility_of(line.trim_start());
        let Some(tree) = item.strip_prefix("use ") else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            let Some(line) = lines.next() else { break };
            tree.push_str(line);
        }
        let tree = tree.split(';').next().unwrap_or_default();
        add_uses(tree, &[], visibility, &mut uses);
    }
    (uses, rest)
}

/// Returns whether an item is public, and the item behind that.
fn visibility_of(item: &str) -> (bool, &str) {
    let Some(rest) = item.strip_prefix("pub") else {
        return (false, item);
    };
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')').map_or("", |(_, rest)| rest),
        None => rest,
    };
    (true, rest.trim_start())
}

/// Adds the paths of a tree such as `a::{b, c::{self, d as e}}`.
fn add_uses(tree: &str, before: &[String], is_re_export: bool, uses: &mut Vec<Use>) {
    let tree = tree.trim();
    let parts_of = |path: &str| -> Segments {
        let parts = path.split("::").map(str::trim);
        let own = parts.filter(|part| !part.is_empty()).map(str::to_owned);
        before.iter().cloned().chain(own).collect()
    };
    if let Some((path, trees)) = tree.split_once('{') {
        let inner = trees.trim_end().strip_suffix('}').unwrap_or(trees);
        let parts = parts_of(path);
        for tree in split_outside_braces(inner) {
            add_uses(tree, &parts, is_re_export, uses);
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
    let mut parts = parts_of(path);
    if parts.len() > 1 && parts.last().is_some_and(|last| last == "self") {
        parts.pop();
    }
    let Some(last) = parts.last() else { return };
    let name = if alias.is_empty() { last } else { alias.trim() };
    uses.push(Use {
        name: name.to_owned(),
        parts,
        is_re_export,
    });
}

/// Parts between the commas that are in no braces.
fn split_outside_braces(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = text.split(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).collect()
}

/// Paths of two names and more in code: `crate::loss::mean`.
fn inline_paths(code: &str) -> Vec<Segments> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut paths = Vec::new();
    for run in code.split(|c: char| !is_name(c) && c != ':') {
        // Single colons belong to types of fields and variables.
        let parts: Vec<&str> = run.trim_matches(':').split("::").collect();
        if parts.len() > 1 && parts.iter().all(|part| part.chars().all(is_name)) {
            paths.push(parts.into_iter().map(str::to_owned).collect());
        }
    }
    paths
}

/// Path below the root of the crate; `None` for one that leads out of it.
fn full_path(parts: &[String], module: &[String], known: &BTreeSet<Segments>) -> Option<Segments> {
    match parts[0].as_str() {
        "crate" => Some(parts[1..].to_vec()),
        "self" => Some([module, &parts[1..]].concat()),
        "super" => {
            let up = parts.iter().take_while(|part| *part == "super").count();
            let above = module.len().checked_sub(up)?;
            Some([&module[..above], &parts[up..]].concat())
        }
        child => {
            let child = [module, &[child.to_owned()]].concat();
            let is_module = known.contains(&child);
            is_module.then(|| [module, parts].concat())
        }
    }
}

/// Module that defines the name at the end of `path`, behind re-exports.
fn definition(path: &[String], modules: &BTreeMap<Segments, Module>) -> Option<Segments> {
    let mut path = path.to_vec();
    // A chain of re-exports is short; the bound ends one that leads back to itself.
    for _ in 0..16 {
        let length = (0..=path.len())
            .rev()
            .find(|n| modules.contains_key(&path[..*n]))?;
        let (module, rest) = path.split_at(length);
        let Some(name) = rest.first() else {
            return Some(path);
        };
        let re_exported = modules[module]
            .re_exports
            .iter()
            .find(|(as_name, _)| as_name == name);
        let Some((_, to)) = re_exported else {
            return Some(module.to_vec());
        };
        path = [to, &rest[1..]].concat();
    }
    None
}

/// Circles of one crate. Its root is no part of one: it is the table of contents.
fn circles_of(modules: &BTreeMap<Segments, Module>, most: usize) -> Vec<Vec<String>> {
    let imports: BTreeMap<&Segments, BTreeSet<Segments>> = modules
        .iter()
        .filter(|(module, _)| !module.is_empty())
        .map(|(module, read)| {
            let to = read
                .paths
                .iter()
                .filter_map(|path| definition(path, modules));
            (
                module,
                to.filter(|to| to != module && !to.is_empty()).collect(),
            )
        })
        .collect();
    let reach: BTreeMap<&Segments, BTreeSet<&Segments>> = imports
        .keys()
        .map(|module| (*module, reachable(module, &imports)))
        .collect();
    let mut found = BTreeSet::new();
    for (module, reached) in &reach {
        let circle: Vec<String> = reached
            .iter()
            .filter(|other| reach[**other].contains(module))
            .map(|other| modules[*other].file.clone())
            .collect();
        if circle.len() > most {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// Modules that `from` needs, over any number of imports; itself only if it is in a circle.
fn reachable<'a>(
    from: &Segments,
    imports: &'a BTreeMap<&Segments, BTreeSet<Segments>>,
) -> BTreeSet<&'a Segments> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Segments> = imports[from].iter().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(&imports[module]);
        }
    }
    reached
}

#[test]
fn files_that_import_each_other_are_a_circle() {
    let files = |texts: &[(&str, &str)]| -> Vec<(String, String)> {
        texts
            .iter()
            .map(|(file, text)| (format!("a/src/{file}"), (*text).to_owned()))
            .collect()
    };
    let three = [
        (
            "lib.rs",
            "mod one; mod two; mod three; use crate::one::One;",
        ),
        (
            "one.rs",
            "use crate::{\n    two::{self, Two as Second},\n};",
        ),
        (
            "two.rs",
            "pub(crate) use self::inner::Two;\npub(crate) mod inner;",
        ),
        ("two/inner.rs", "fn go() { crate::three::go() }"),
        (
            "three.rs",
            "use super::one;\nfn go() -> one::One { todo!() }",
        ),
    ];
    assert_eq!(
        circles(&files(&three), 2),
        [["a/src/one.rs", "a/src/three.rs", "a/src/two/inner.rs"]]
    );
    assert!(circles(&files(&three), 3).is_empty());
    // Neither a test nor a text nor the import of a re-export closes it.
    for harmless in [
        "#[cfg(test)]\nmod tests { use crate::three::go; }",
        "const A: &str = \"crate::three::go\"; // crate::three::go",
        "#[cfg(test)]\nuse crate::{\n    three::go,\n};",
    ] {
        let mut open = three;
        open[3].1 = harmless;
        assert!(circles(&files(&open), 2).is_empty(), "{harmless}");
    }
}
