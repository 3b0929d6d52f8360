//! Gives the shared library its SONAME: `libtalea.so.0`, or what `TALEA_SONAME` says.
//!
//! The ReTiF names are in the same library. For programs that were linked with the original, the
//! same code is built once more with `TALEA_SONAME=libretif.so.0` and installed under that name.
fn main() {
    println!("cargo::rerun-if-env-changed=TALEA_SONAME");
    println!("cargo::rerun-if-changed=build.rs");
    let soname = std::env::var("TALEA_SONAME").unwrap_or_else(|_| "libtalea.so.0".into());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{soname}");
}
