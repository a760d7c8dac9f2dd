//! Members that are tables or texts, read like files of their names.

use std::{
    cell::RefCell,
    io::{Cursor, Read},
    mem,
};

use super::member::{Member, Members, is_meant};
use crate::{
    file_format::{self, Kind, Packing},
    notices::LeftOut,
    record::Record,
    remedy::Remedy,
    rows::{Layout, Rows, one_pass::of_reader, unpack},
    text_rows::TextRows,
    value::shorten,
};

/// Number of names listed in the error when no member is chosen.
const TOLD: usize = 5;

/// The records of a member, and its name.
type Open = (String, Box<dyn Rows>);

/// Reads the tables and texts of an archive, one member after the other.
pub(crate) struct TableMembers<M> {
    members: M,
    archive: String,
    layout: Layout,
    /// The member that is read, and its name.
    now: Option<Open>,
    /// Columns by the header of that member, before its first record.
    header: Option<Vec<String>>,
    is_any: bool,
    /// The first names that were skipped.
    left_out: Vec<String>,
    /// Members that were skipped by their extensions.
    unknown: LeftOut,
    /// Members with a header and a record that were opened, and their columns.
    opened: Vec<(String, Vec<String>)>,
}

impl<M: Members> TableMembers<M> {
    /// Reads the archive at the path `archive` with the settings of `layout`.
    pub(crate) fn new(members: M, archive: &str, layout: &Layout) -> Self {
        Self {
            members,
            archive: archive.to_owned(),
            layout: layout.clone(),
            now: None,
            header: None,
            is_any: false,
            left_out: Vec::new(),
            unknown: LeftOut::default(),
            opened: Vec::new(),
        }
    }

    /// Opens the next member that is read; `None` after the last.
    fn next_member(&mut self) -> Result<Option<Open>, String> {
        let left_out = RefCell::new(mem::take(&mut self.left_out));
        let unknown = RefCell::new(mem::take(&mut self.unknown));
        let layout = &self.layout;
        let wanted = |name: &str| {
            let is_meant = is_meant(name, &layout.archive);
            let is_wanted = is_meant && is_told(name, layout);
            if !is_wanted && left_out.borrow().len() < TOLD {
                left_out.borrow_mut().push(name.to_owned());
            }
            if is_meant && !is_wanted {
                unknown.borrow_mut().add(name);
            }
            is_wanted
        };
        let next = self.members.next(&wanted);
        (self.left_out, self.unknown) = (left_out.into_inner(), unknown.into_inner());
        let Some((name, member)) = next? else {
            if !self.is_any {
                return Err(self.none());
            }
            self.unknown.push(
                &self.layout.notices,
                &self.layout.name,
                "archive.member",
                "to read others, set `format`, and `archive.member` to a pattern with their names; unpack archives inside of it, and save spreadsheets as CSV",
            );
            return Ok(None);
        };
        self.is_any = true;
        let mut rows = self.open(&name, member).map_err(|e| of_member(&name, &e))?;
        self.header = match self.has_header(&name) {
            true => rows.columns().map_err(|e| of_member(&name, &e))?,
            false => None,
        };
        Ok(Some((name, rows)))
    }

    /// Returns true for CSV whose names are in its first line.
    fn has_header(&self, name: &str) -> bool {
        let Layout { format, csv, .. } = &self.layout;
        let named = file_format::named(name, *format, self.layout.delimiter);
        csv.header && csv.columns.is_empty() && matches!(named, Some((Kind::Csv { .. }, _)))
    }

    fn open(&self, name: &str, member: Member) -> Result<Box<dyn Rows>, String> {
        let bytes = match member {
            Member::Whole(bytes) => bytes,
            Member::Bad(_, told) => return Err(told),
        };
        let named = file_format::named(name, self.layout.format, self.layout.delimiter);
        let (kind, packing) = named.ok_or_else(|| {
            format!(
                "its name has no known extension ({}); {}",
                file_format::table_endings(),
                file_format::workbook_remedy(name).unwrap_or("set `format`")
            )
        })?;
        if matches!(kind, Kind::Tar | Kind::Zip) {
            return Err("an archive in an archive is not read; unpack the outer one".into());
        }
        let bytes = self.unpacked(bytes, packing)?;
        if kind == Kind::Text {
            let rows = TextRows::new(bytes, self.layout.text.separator.as_deref());
            let folder = name.rsplit('/').nth(1).filter(|folder| !folder.is_empty());
            return Ok(Box::new(
                rows.with_path(&format!("{}!/{name}", self.archive), folder),
            ));
        }
        let layout = Layout {
            kind,
            packing,
            name: format!("{}!/{name}", self.layout.name),
            ..self.layout.clone()
        };
        of_reader(Box::new(Cursor::new(bytes)), &layout)
    }

    /// A compressed member must not be larger, once decompressed, than an uncompressed one may be.
    fn unpacked(&self, bytes: Vec<u8>, packing: Packing) -> Result<Vec<u8>, String> {
        if packing == Packing::Plain {
            return Ok(bytes);
        }
        let most = self.layout.archive.max_member_bytes.bytes();
        let mut unpacked = Vec::new();
        let reader = unpack(Cursor::new(bytes), packing)?;
        let read = reader.take(most + 1).read_to_end(&mut unpacked);
        if read.map_err(|e| e.to_string())? as u64 > most {
            return Err(format!(
                "it unpacks to more than {most} bytes, which is `archive.max_member_bytes`"
            ));
        }
        Ok(unpacked)
    }

    fn none(&self) -> String {
        let names = shorten(&self.left_out.join("`, `"), 200).into_owned();
        let among = match self.left_out.is_empty() {
            true => "it is empty".to_owned(),
            false => format!("it has `{names}`"),
        };
        match &self.layout.archive.member {
            Some(pattern) => format!("no member matches `archive.member` = `{pattern}`; {among}"),
            None => {
                let remedy = Remedy::Members(self.left_out.clone());
                self.layout.notices.push_remedy(remedy);
                format!(
                    "no member has a known extension ({}); {among}; set `format` and `archive.member`",
                    file_format::table_endings()
                )
            }
        }
    }
}

/// Returns true if a member of this name is read: a pattern chooses members, or its extension names
/// a format that is no archive.
fn is_told(name: &str, layout: &Layout) -> bool {
    let named = file_format::named(name, layout.format, layout.delimiter);
    let is_archive = matches!(named, Some((Kind::Tar | Kind::Zip, _)));
    layout.archive.member.is_some() || (named.is_some() && !is_archive)
}

fn of_member(name: &str, told: &str) -> String {
    format!("member `{}`: {told}", shorten(name, 200))
}

impl<M: Members> Rows for TableMembers<M> {
    fn next(&mut self) -> Result<Option<Record>, String> {
        loop {
            let (name, mut rows) = match self.now.take() {
                Some(now) => now,
                None => match self.next_member()? {
                    Some(now) => now,
                    None => return Ok(None),
                },
            };
            let next = rows.next().map_err(|e| of_member(&name, &e))?;
            let Some(mut record) = next else { continue };
            if let Some(header) = self.header.take() {
                self.opened.push((name.clone(), header));
            }
            if let Record::Bad { detail, .. } = &mut record {
                *detail = of_member(&name, detail);
            }
            self.now = Some((name, rows));
            return Ok(Some(record));
        }
    }

    fn take_members(&mut self) -> Vec<(String, Vec<String>)> {
        mem::take(&mut self.opened)
    }

    fn place(&self) -> String {
        match &self.now {
            Some((name, rows)) => of_member(name, &rows.place()),
            None => "the archive".to_owned(),
        }
    }
}
