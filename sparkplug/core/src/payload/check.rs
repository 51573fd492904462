//! Walks over the parts of a metric that are decoded only on request: properties, tables, descriptions. Templates, which hold metrics, are walked over by [`super::read`].
//! Everything that would make them invalid protobuf is found here. Everything that will cost memory is counted: two bytes on the wire can ask for a hundred in memory, and nesting
//! for stack. Allocates nothing.

use super::limits::Limits;
use super::wire::{FIXED32, FIXED64, Fault, Fields, SLICE, VARINT, Wanted, key};

/// What may still be read.
#[derive(Debug)]
pub(super) struct Budget {
    elements: usize,
    depth_max: usize,
}

impl Budget {
    pub(super) const fn new(limits: &Limits) -> Self {
        Self { elements: limits.elements_max, depth_max: limits.depth_max }
    }

    #[inline]
    pub(super) fn element(&mut self) -> Result<(), Fault> {
        self.elements = self.elements.checked_sub(1).ok_or(Fault::Elements)?;
        Ok(())
    }

    /// One more message, at this depth.
    #[inline]
    pub(super) fn message(&mut self, depth: usize) -> Result<(), Fault> {
        if depth > self.depth_max {
            return Err(Fault::Depth);
        }
        self.element()
    }
}

/// What the six fields that carry basic values should be. They have the same order in every oneof.
pub(super) const CARRIERS: [Wanted; 6] =
    [Wanted::Number, Wanted::Number, Wanted::Float, Wanted::Double, Wanted::Number, Wanted::Bytes];

/// Passes over one of those six fields; `position` counts from the first of them. False if it is none of them.
#[inline]
pub(super) fn basic_value(fields: &mut Fields<'_>, field: u32, first: u32) -> Result<bool, Fault> {
    let position = (field >> 3).wrapping_sub(first);
    match (position, field & 7) {
        (0 | 1 | 4, VARINT) => fields.long().map(drop)?,
        (2, FIXED32) => fields.float().map(drop)?,
        (3, FIXED64) => fields.double().map(drop)?,
        (5, SLICE) => fields.text().map(drop)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Extensions mean nothing here, but are messages.
pub(super) fn extension(bytes: &[u8]) -> Result<(), Fault> {
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        fields.skip(field, &[])?;
    }
    Ok(())
}

pub(super) fn metadata(bytes: &[u8], budget: &mut Budget, depth: usize) -> Result<(), Fault> {
    const KNOWN: [Wanted; 8] = [
        Wanted::Number,
        Wanted::Bytes,
        Wanted::Number,
        Wanted::Number,
        Wanted::Bytes,
        Wanted::Bytes,
        Wanted::Bytes,
        Wanted::Bytes,
    ];
    budget.message(depth)?;
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        match (field >> 3, field & 7) {
            (1 | 3 | 4, VARINT) => fields.long().map(drop)?,
            (2 | 5..=8, SLICE) => fields.text().map(drop)?,
            _ => fields.skip(field, &KNOWN)?,
        }
    }
    Ok(())
}

pub(super) fn properties(bytes: &[u8], budget: &mut Budget, depth: usize) -> Result<(), Fault> {
    const KEY: u32 = key(1, SLICE);
    const VALUE: u32 = key(2, SLICE);
    budget.message(depth)?;
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        match field {
            KEY => {
                budget.element()?;
                fields.text()?;
            }
            VALUE => property(fields.slice()?, budget, depth + 1)?,
            _ => fields.skip(field, &[Wanted::Bytes; 2])?,
        }
    }
    Ok(())
}

fn property(bytes: &[u8], budget: &mut Budget, depth: usize) -> Result<(), Fault> {
    const DATATYPE: u32 = key(1, VARINT);
    const IS_NULL: u32 = key(2, VARINT);
    const SET: u32 = key(9, SLICE);
    const LIST: u32 = key(10, SLICE);
    const EXTENSION: u32 = key(11, SLICE);
    const KNOWN: [Wanted; 11] = {
        let mut known = [Wanted::Bytes; 11];
        known[0] = Wanted::Number;
        known[1] = Wanted::Number;
        let mut i = 0;
        while i < 6 {
            known[2 + i] = CARRIERS[i];
            i += 1;
        }
        known
    };
    budget.message(depth)?;
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        match field {
            DATATYPE | IS_NULL => fields.long().map(drop)?,
            SET => properties(fields.slice()?, budget, depth + 1)?,
            LIST => property_sets(fields.slice()?, budget, depth + 1)?,
            EXTENSION => extension(fields.slice()?)?,
            _ => {
                if !basic_value(&mut fields, field, 3)? {
                    fields.skip(field, &KNOWN)?;
                }
            }
        }
    }
    Ok(())
}

fn property_sets(bytes: &[u8], budget: &mut Budget, depth: usize) -> Result<(), Fault> {
    const SET: u32 = key(1, SLICE);
    budget.message(depth)?;
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        match field {
            SET => properties(fields.slice()?, budget, depth + 1)?,
            _ => fields.skip(field, &[Wanted::Bytes])?,
        }
    }
    Ok(())
}

pub(super) fn dataset(bytes: &[u8], budget: &mut Budget, depth: usize) -> Result<(), Fault> {
    const WIDTH: u32 = key(1, VARINT);
    const COLUMN: u32 = key(2, SLICE);
    const TYPE: u32 = key(3, VARINT);
    const TYPES: u32 = key(3, SLICE);
    const ROW: u32 = key(4, SLICE);
    const KNOWN: [Wanted; 4] = [Wanted::Number, Wanted::Bytes, Wanted::Number, Wanted::Bytes];
    budget.message(depth)?;
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        match field {
            WIDTH => fields.long().map(drop)?,
            COLUMN => {
                budget.element()?;
                fields.text()?;
            }
            TYPE => {
                budget.element()?;
                fields.int()?;
            }
            TYPES => {
                let mut numbers = Fields::new(fields.slice()?);
                while numbers.next_packed()?.is_some() {
                    budget.element()?;
                }
            }
            ROW => row(fields.slice()?, budget, depth + 1)?,
            _ => fields.skip(field, &KNOWN)?,
        }
    }
    Ok(())
}

fn row(bytes: &[u8], budget: &mut Budget, depth: usize) -> Result<(), Fault> {
    const CELL: u32 = key(1, SLICE);
    budget.message(depth)?;
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        match field {
            CELL => {
                budget.message(depth + 1)?;
                cell(fields.slice()?)?;
            }
            _ => fields.skip(field, &[Wanted::Bytes])?,
        }
    }
    Ok(())
}

fn cell(bytes: &[u8]) -> Result<(), Fault> {
    const EXTENSION: u32 = key(7, SLICE);
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_key()? {
        if field == EXTENSION {
            extension(fields.slice()?)?;
        } else if !basic_value(&mut fields, field, 1)? {
            let [a, b, c, d, e, f] = CARRIERS;
            fields.skip(field, &[a, b, c, d, e, f, Wanted::Bytes])?;
        }
    }
    Ok(())
}
