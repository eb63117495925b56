//! The part of protoc's command line that prost-build uses, on top of protox: descriptor sets, no
//! code generators.

use std::process::ExitCode;

#[derive(Default)]
struct Options {
    out: Option<String>,
    includes: Vec<String>,
    imports: bool,
    source_info: bool,
    files: Vec<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--version") {
        println!("libprotoc 31.1 (protox 0.10)");
        return ExitCode::SUCCESS;
    }
    match parse(args).and_then(compile) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("protoc (.cargo/protoc): {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Options take their value joined (`-Idir`, `--proto_path=dir`) or as the next argument, as in
/// protoc.
fn parse(args: Vec<String>) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let (flag, joined) = split(&arg);
        let mut value = || {
            joined
                .map(str::to_owned)
                .or_else(|| args.next())
                .ok_or(format!("{flag} needs a value"))
        };
        match flag {
            "-o" | "--descriptor_set_out" => options.out = Some(value()?),
            "-I" | "--proto_path" => options.includes.push(value()?),
            "--include_imports" => options.imports = true,
            "--include_source_info" => options.source_info = true,
            // Accepted by old releases only to switch on what is now always on.
            "--experimental_allow_proto3_optional" => {}
            _ if flag.starts_with('-') => {
                return Err(format!("{flag} is not supported here; set PROTOC to a full protoc"));
            }
            file => options.files.push(file.to_owned()),
        }
    }
    Ok(options)
}

fn split(arg: &str) -> (&str, Option<&str>) {
    if arg.starts_with("--") {
        return arg
            .split_once('=')
            .map_or((arg, None), |(flag, value)| (flag, Some(value)));
    }
    match arg.split_at_checked(2) {
        Some((flag @ ("-I" | "-o"), value)) if !value.is_empty() => (flag, Some(value.trim_start_matches('='))),
        _ => (arg, None),
    }
}

fn compile(mut options: Options) -> Result<(), String> {
    if options.includes.is_empty() {
        options.includes.push(".".to_owned());
    }
    let out = options.out.ok_or("only --descriptor_set_out is supported")?;
    let mut compiler = protox::Compiler::new(&options.includes).map_err(|error| error.to_string())?;
    compiler
        .include_imports(options.imports)
        .include_source_info(options.source_info);
    compiler
        .open_files(&options.files)
        .map_err(|error| format!("{error:?}"))?;
    std::fs::write(&out, compiler.encode_file_descriptor_set()).map_err(|error| format!("{out}: {error}"))
}
