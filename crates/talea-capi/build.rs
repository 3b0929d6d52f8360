//! Sets the SONAME of the shared library: `libtalea.so.0`, or the value of `TALEA_SONAME`.
//!
//! The library also exports the functions of ReTiF. Programs linked with ReTiF's own library need
//! the SONAME `libretif.so.0`: set `TALEA_SONAME` to this value, or let `cargo xtask install`
//! replace the SONAME.
fn main() {
    println!("cargo::rerun-if-env-changed=TALEA_SONAME");
    println!("cargo::rerun-if-changed=build.rs");
    let soname = std::env::var("TALEA_SONAME").unwrap_or_else(|_| "libtalea.so.0".into());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{soname}");
}
