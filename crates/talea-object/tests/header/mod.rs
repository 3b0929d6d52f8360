//! Compiles programs that include a header of this package, with every warning an error. The tests
//! of other packages with a header share this file.

use std::path::Path;
use std::process::Command;

/// Compiles `program` as C, without output.
pub(crate) fn compile_c(name: &str, program: &str) {
    compile("cc", &["-std=c11", "-Wstrict-prototypes"], &format!("{name}.c"), program);
}

/// Compiles a C++ program that includes `header`, without output.
pub(crate) fn compile_cpp(header: &str) {
    let program = format!("#include \"{header}\"\nint main() {{ return 0; }}\n");
    compile("c++", &["-std=c++17"], &format!("{header}.cpp"), &program);
}

fn compile(compiler: &str, arguments: &[&str], name: &str, program: &str) {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(source.parent().expect("a parent")).expect("scratch folder");
    std::fs::write(&source, program).expect("write");
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
        .args(arguments)
        .arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"))
        .arg(source)
        .output()
        .expect("a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
