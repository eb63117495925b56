//! Lowering of the parser's tree to ours: resolves names, recognizes macros, flattens chains,
//! enforces limits.

use crate::check::Checked;
use crate::env::Env;
use crate::error::CompileError;
use crate::functions::{self, Found};
use crate::ir::Price;
use crate::ir::{Element, Entry, Field, Link, NODE_DEPTH_MAX, Node, Overloads};
use crate::lowering::Lowering;
use crate::macros::OptionalBinding;
use crate::operator::Operator;
use crate::parse::Parsed;
use crate::path::{Absence, is_access};
use crate::program::{AbsenceMode, Lowered, Reference};
use crate::regex::Pattern;
use crate::types::Type;
use crate::value::Const;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, StructExpr, operators};

pub(crate) fn lower(parsed: &Parsed, checked: &Checked, env: &Env) -> Result<Lowered> {
    let mut lowering = Lowering {
        parsed,
        checked,
        env,
        used: Vec::new(),
        locals: Vec::new(),
        references: Vec::new(),
        patterns: Vec::new(),
    };
    let node = lowering.node(&parsed.tree, 0)?;
    let lookups = crate::lookups::lookups(&parsed.tree);
    Ok(Lowered {
        node,
        variables: lowering.used,
        references: lowering.references,
        lookups,
        patterns: lowering.patterns,
    })
}

type Result<T> = std::result::Result<T, CompileError>;

impl Lowering<'_> {
    pub(crate) fn node(&mut self, expr: &IdedExpr, depth: usize) -> Result<Node> {
        if depth > NODE_DEPTH_MAX {
            return Err(CompileError::whole(format!(
                "expression recursion limit exceeded: {NODE_DEPTH_MAX}"
            )));
        }
        let below = depth + 1;
        match &expr.expr {
            Expr::Unspecified => Err(CompileError::whole("incomplete expression")),
            Expr::Literal(literal) => Ok(Node::Const(constant(literal))),
            Expr::Ident(name) => self.identifier(expr, name),
            Expr::Select(select) if select.test => {
                let field = self.field(&select.operand, &select.field);
                let base = self.access(&select.operand, Absence::TestedFor(&field.name), below)?;
                Ok(Node::Has {
                    base: Box::new(base),
                    field,
                })
            }
            Expr::Select(_) => self.access(expr, Absence::NotExpected, below),
            Expr::Call(call) if is_access(&call.func_name) => self.access(expr, Absence::NotExpected, below),
            Expr::Call(call) => self.call(expr, call.target.as_deref(), &call.func_name, &call.args, below),
            Expr::List(list) => self.list(list, below),
            Expr::Map(map) => self.map(map, below),
            Expr::Struct(literal) => self.object(literal, below),
            Expr::Comprehension(fold) => self.comprehension(fold, below),
        }
    }

    fn identifier(&mut self, expr: &IdedExpr, name: &str) -> Result<Node> {
        match self.resolve(name) {
            Some(Node::Variable(slot)) => {
                self.refer(slot, Vec::new(), false);
                Ok(Node::Variable(slot))
            }
            Some(node) => Ok(node),
            None => Err(self.undeclared(expr, name)),
        }
    }

    /// Resolves a name: the innermost comprehension variable, a declared variable, or a type.
    pub(crate) fn resolve(&mut self, name: &str) -> Option<Node> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(index) = self.locals.iter().rposition(|l| l == name) {
            return Some(Node::Local(index));
        }
        if self.env.variables.iter().any(|v| *v.name == *name) {
            let slot = self.used.iter().position(|u| u == name).unwrap_or_else(|| {
                self.used.push(name.to_owned());
                self.used.len() - 1
            });
            return Some(Node::Variable(slot));
        }
        functions::type_constant(name).map(|t| Node::Const(Const::Type(t)))
    }

    /// Returns the field that a name selects from an operand: the stored name where the operand's
    /// fields are declared, the written name for a map.
    pub(crate) fn field(&self, operand: &IdedExpr, written: &str) -> Field {
        let mut ty = self.checked.ty(operand.id);
        if let Type::Optional(value) = ty {
            ty = value;
        }
        match ty {
            Type::Object(decl) => {
                let declared = decl.written(written).map_or(written, |field| &*field.name);
                Field::stored(declared)
            }
            // Conversion rules may use escapes for fields of undeclared values, too.
            Type::Dyn if self.env.mode == AbsenceMode::Absent => Field::parse(written),
            _ => Field::stored(written),
        }
    }

    fn call(
        &mut self,
        expr: &IdedExpr,
        target: Option<&IdedExpr>,
        name: &str,
        args: &[IdedExpr],
        depth: usize,
    ) -> Result<Node> {
        match (name, args) {
            (operators::LOGICAL_AND, _) => return Ok(Node::And(self.terms(expr, name, depth)?)),
            (operators::LOGICAL_OR, _) => return Ok(Node::Or(self.terms(expr, name, depth)?)),
            (operators::LOGICAL_NOT, [operand]) => return Ok(Node::Not(Box::new(self.node(operand, depth)?))),
            (operators::NEGATE, [operand]) => return Ok(Node::Negate(Box::new(self.node(operand, depth)?))),
            (operators::CONDITIONAL, [_, _, _]) => return self.conditional(expr, depth),
            _ => {}
        }
        if target.is_none() && Operator::parse(name).is_some() {
            return self.chain(expr, depth);
        }
        let name = name.strip_prefix('.').unwrap_or(name);
        let Some(target) = target else {
            return self.function(expr, name, None, args, depth);
        };
        if let Some(full) = self.checked.name(expr.id) {
            return self.function(expr, full, None, args, depth);
        }
        if let Some(node) = self.lazy(target, name, args, depth)? {
            return Ok(node);
        }
        self.function(expr, name, Some(target), args, depth)
    }

    /// Flattens `a && b && c`, which the parser makes a balanced tree of.
    fn terms(&mut self, expr: &IdedExpr, operator: &str, depth: usize) -> Result<Box<[Node]>> {
        let (mut terms, mut pending) = (Vec::new(), vec![expr]);
        while let Some(next) = pending.pop() {
            match &next.expr {
                Expr::Call(call) if call.func_name == operator => pending.extend(call.args.iter().rev()),
                _ => terms.push(self.node(next, depth)?),
            }
        }
        Ok(terms.into())
    }

    fn function(
        &mut self,
        expr: &IdedExpr,
        name: &str,
        target: Option<&IdedExpr>,
        args: &[IdedExpr],
        depth: usize,
    ) -> Result<Node> {
        let count = args.len() + usize::from(target.is_some());
        let function = match functions::find(name, target.is_some(), count) {
            Found::Function(function) => function,
            Found::WrongArguments => {
                let types = vec!["dyn"; args.len()].join(", ");
                let shape = if target.is_some() {
                    format!("dyn.({types})")
                } else {
                    format!("({types})")
                };
                let message = format!("found no matching overload for '{name}' applied to '{shape}'");
                return Err(self.error(expr, message));
            }
            Found::Nothing => return Err(self.undeclared(expr, name)),
        };
        let arguments: Box<[Node]> = target
            .into_iter()
            .chain(args)
            .map(|a| self.node(a, depth))
            .collect::<Result<_>>()?;
        self.constant_pattern(expr, function, arguments)
    }

    /// Compiles a constant regular expression with the program. An invalid one is a compile error
    /// of `matches`; the other functions fail when they are called.
    fn constant_pattern(
        &mut self,
        expr: &IdedExpr,
        function: &'static functions::Function,
        arguments: Box<[Node]>,
    ) -> Result<Node> {
        let price = Price::for_function(function.name, self.overloads(expr));
        let call = |arguments| Node::Call {
            function,
            arguments,
            price,
        };
        if let ("find" | "findAll", [_, Node::Const(Const::String(text)), ..]) = (function.name, &*arguments)
            && self.patterns.iter().all(|known| *known.text != **text)
        {
            let compiled = crate::regex::compile_finder(text).map_err(|why| CompileError::planning(why.to_string()))?;
            self.patterns.push(Pattern {
                text: (**text).into(),
                compiled: compiled.into(),
            });
        }
        if function.name != "matches" {
            return Ok(call(arguments));
        }
        match <[Node; 2]>::try_from(arguments.into_vec()) {
            Ok([target, Node::Const(Const::String(text))]) => {
                let pattern = crate::regex::compile(&text)
                    .map_err(|e| self.error(expr, format!("invalid matches argument: {e}")))?;
                Ok(Node::Matches {
                    target: Box::new(target),
                    pattern: pattern.into(),
                    pattern_bytes: text.len(),
                })
            }
            Ok(arguments) => Ok(call(arguments.into())),
            Err(arguments) => Ok(call(arguments.into())),
        }
    }

    fn overloads(&self, call: &IdedExpr) -> Overloads {
        match self.checked.overloads(call.id) {
            [] | [_] => Overloads::One,
            _ => Overloads::Several,
        }
    }

    /// Flattens `c ? t : d ? u : e` to one list of arms.
    fn conditional(&mut self, expr: &IdedExpr, depth: usize) -> Result<Node> {
        if let Some(binding) = OptionalBinding::from_expansion(expr) {
            return self.optional_map(&binding, depth);
        }
        let mut arms = Vec::new();
        let mut rest = expr;
        while let Expr::Call(call) = &rest.expr
            && call.func_name == operators::CONDITIONAL
            && let [condition, then, otherwise] = call.args.as_slice()
            && OptionalBinding::from_expansion(rest).is_none()
        {
            arms.push((self.node(condition, depth)?, self.node(then, depth)?));
            rest = otherwise;
        }
        let otherwise = Box::new(self.node(rest, depth)?);
        Ok(Node::Conditional {
            arms: arms.into(),
            otherwise,
        })
    }

    /// Flattens `a + b - c` to one list, applied from the left.
    fn chain(&mut self, expr: &IdedExpr, depth: usize) -> Result<Node> {
        let mut reversed = Vec::new();
        let mut first = expr;
        while let Expr::Call(call) = &first.expr
            && call.target.is_none()
            && let Some(operator) = Operator::parse(&call.func_name)
            && let [left, right] = call.args.as_slice()
        {
            reversed.push((operator, right, self.overloads(first)));
            first = left;
        }
        let first = Box::new(self.node(first, depth)?);
        let rest = reversed
            .into_iter()
            .rev()
            .map(|(operator, right, overloads)| {
                Ok(Link {
                    operator,
                    operand: self.node(right, depth)?,
                    overloads,
                })
            })
            .collect::<Result<Box<[_]>>>()?;
        Ok(Node::Chain { first, rest })
    }

    fn list(&mut self, list: &ListExpr, depth: usize) -> Result<Node> {
        let mut elements = Vec::with_capacity(list.elements.len());
        for (i, element) in list.elements.iter().enumerate() {
            let optional = list.optional_indices.contains(&i);
            elements.push(Element {
                node: self.node(element, depth)?,
                optional,
            });
        }
        Ok(Node::List(elements.into()))
    }

    fn map(&mut self, map: &MapExpr, depth: usize) -> Result<Node> {
        let mut entries = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(CompileError::whole("malformed map literal"));
            };
            let key = self.node(&entry.key, depth)?;
            entries.push(Entry {
                key,
                value: self.node(&entry.value, depth)?,
                optional: entry.optional,
            });
        }
        Ok(Node::Map(entries.into()))
    }

    /// Lowers `JSONPatch{op: 'add'}` to a value of fields, as in JSON.
    fn object(&mut self, literal: &StructExpr, depth: usize) -> Result<Node> {
        let mut entries = Vec::with_capacity(literal.entries.len());
        for entry in &literal.entries {
            let EntryExpr::StructField(field) = &entry.expr else {
                return Err(CompileError::whole("malformed object literal"));
            };
            entries.push(Entry {
                key: Node::Const(Const::String(field.field.as_str().into())),
                value: self.node(&field.value, depth)?,
                optional: field.optional,
            });
        }
        Ok(Node::Object(entries.into()))
    }

    pub(crate) fn refer(&mut self, slot: usize, path: Vec<String>, tested: bool) {
        let variable = &self.used[slot];
        match self
            .references
            .iter_mut()
            .find(|r| r.variable == *variable && r.path == path)
        {
            Some(known) => known.tested &= tested,
            None => self.references.push(Reference {
                variable: variable.clone(),
                path,
                tested,
            }),
        }
    }

    pub(crate) fn undeclared(&self, expr: &IdedExpr, name: &str) -> CompileError {
        self.error(expr, format!("undeclared reference to '{name}' (in container '')"))
    }

    pub(crate) fn error(&self, expr: &IdedExpr, message: String) -> CompileError {
        CompileError::collect(vec![self.parsed.issue(expr.id, message)])
    }
}

fn constant(literal: &LiteralValue) -> Const {
    match literal {
        LiteralValue::Null => Const::Null,
        LiteralValue::Boolean(b) => Const::Bool(*b.inner()),
        LiteralValue::Int(i) => Const::Int(*i.inner()),
        LiteralValue::UInt(u) => Const::Uint(*u.inner()),
        LiteralValue::Double(d) => Const::Double(*d.inner()),
        LiteralValue::String(s) => Const::String(s.inner().into()),
        LiteralValue::Bytes(b) => Const::Bytes(b.inner().into()),
    }
}
