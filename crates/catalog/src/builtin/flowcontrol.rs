//! FlowSchemas and PriorityLevelConfigurations, served without objects. Every server that is built
//! on Kubernetes' library lists and watches them, and would do so for ever where they are not
//! served. Fairness between tenants needs no configuration here.

use crate::{Builtin, CellValue, Strategy, Table, TableColumn, Traits, kind::crd};

pub(super) const KINDS: &[Builtin] = &[
    Builtin {
        strategy: &ReadOnly,
        table: Some(Table::new(&[
            TableColumn::NAME,
            TableColumn::text(
                "PriorityLevel",
                "",
                CellValue::Text("/spec/priorityLevelConfiguration/name"),
            ),
            TableColumn::AGE,
        ])),
        ..Builtin::new(crd!("flowcontrol.apiserver.k8s.io_flowschemas"))
    },
    Builtin {
        strategy: &ReadOnly,
        table: Some(Table::new(&[
            TableColumn::NAME,
            TableColumn::text("Type", "", CellValue::Text("/spec/type")),
            TableColumn::AGE,
        ])),
        ..Builtin::new(crd!("flowcontrol.apiserver.k8s.io_prioritylevelconfigurations"))
    },
];

/// Kinds without objects.
struct ReadOnly;

impl Strategy for ReadOnly {
    fn traits(&self) -> Traits {
        Traits {
            read_only: true,
            ..Traits::BUILT_IN
        }
    }
}
