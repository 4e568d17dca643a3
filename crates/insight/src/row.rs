//! One row of a SELECT, as its expressions read it.
//!
//! It is separate from `rows`, which keeps all rows of a SELECT up to date.

use barograph_model::Quality;
use barograph_statement::{ColumnField, ColumnRef, ExprInput, SqlValue, UncertainValue};

use crate::slot::{SlotSample, StreamSlot};

/// The newest samples of the streams of one row, and the aggregates of its group.
#[derive(Clone, Copy)]
pub(crate) struct SlotRow<'a> {
    pub slots: &'a [StreamSlot],
    /// One slot per table of FROM; empty for a group without rows.
    pub inputs: &'a [u32],
    pub aggregates: &'a [UncertainValue],
}

impl ExprInput for SlotRow<'_> {
    fn column(self, column: &ColumnRef) -> UncertainValue {
        let Some(slot) = self
            .inputs
            .get(column.from)
            .map(|&i| &self.slots[i as usize])
        else {
            return UncertainValue::NULL;
        };
        let dynamic = |read: fn(&SlotSample) -> UncertainValue| {
            slot.newest.as_ref().map_or(UncertainValue::NULL, read)
        };
        match &column.field {
            ColumnField::Node(node) => UncertainValue::exact(SqlValue::Text(node.clone())),
            ColumnField::Label(name) => UncertainValue::exact(slot.label(name)),
            ColumnField::Value => dynamic(|s| UncertainValue {
                val: s.val.clone(),
                err: s.error,
            }),
            ColumnField::Ts => dynamic(|s| UncertainValue::exact(SqlValue::Int(s.ts))),
            ColumnField::Error => dynamic(|s| UncertainValue::exact(SqlValue::real(s.error))),
            ColumnField::Quality => dynamic(|s| UncertainValue::exact(quality(s.quality))),
        }
    }

    fn computed(self, number: usize) -> UncertainValue {
        let value = self.aggregates.get(number).cloned();
        value.unwrap_or(UncertainValue::NULL)
    }
}

fn quality(quality: Quality) -> SqlValue {
    SqlValue::Text(quality.as_str().into())
}
