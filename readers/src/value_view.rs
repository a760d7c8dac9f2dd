//! A value of a record without its owner: in a tree, in the text of a document or in a column.

use std::borrow::Cow;

use crate::value::Value;

/// A value that is read where it is stored.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueView<'a> {
    /// [`Value::Null`].
    Null,
    /// [`Value::Bool`].
    Bool(bool),
    /// [`Value::Int`].
    Int(i64),
    /// [`Value::Float`].
    Float(f64),
    /// [`Value::Written`]: the nearest float, and the number as it is written.
    Written(f64, &'a str),
    /// [`Value::Digits`].
    Digits(&'a str),
    /// [`Value::Text`]; only a text with escapes is a copy.
    Text(Cow<'a, str>),
    /// [`Value::Cell`].
    Cell(&'a str),
    /// [`Value::Time`].
    Time(&'a str),
    /// [`Value::Bytes`] or [`Value::ByteCell`].
    Bytes(&'a [u8]),
    /// [`Value::List`].
    List,
    /// [`Value::Object`].
    Object,
}

impl Value {
    /// The value without a copy; the closest valid one of a fault.
    pub fn view(&self) -> ValueView<'_> {
        match self {
            Self::Null => ValueView::Null,
            Self::Bool(value) => ValueView::Bool(*value),
            Self::Int(value) => ValueView::Int(*value),
            Self::Float(value) => ValueView::Float(*value),
            Self::Written(number) => ValueView::Written(number.value(), number.text()),
            Self::Digits(text) => ValueView::Digits(text),
            Self::Text(text) => ValueView::Text(Cow::Borrowed(text)),
            Self::Cell(text) => ValueView::Cell(text),
            Self::Time(text) => ValueView::Time(text),
            Self::Bytes(bytes) | Self::ByteCell(bytes) => ValueView::Bytes(bytes),
            Self::List(_) => ValueView::List,
            Self::Object(_) => ValueView::Object,
            Self::Fault(fault) => fault.kept.view(),
        }
    }
}
