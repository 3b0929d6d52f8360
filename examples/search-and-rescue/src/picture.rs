//! Grey pictures, and files of them: binary PGM (netpbm), one after the other.

use std::io::Write;

/// Rows of pixels, 0 black to 255 white.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Row by row from the top.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// A black one.
    pub fn new(width: usize, height: usize) -> Picture {
        Picture { width, height, pixels: vec![0; width * height] }
    }

    /// The pixel there; beyond the border, the nearest.
    pub fn near(&self, x: i32, y: i32) -> u8 {
        let within = |at: i32, size: usize| at.clamp(0, size as i32 - 1) as usize;
        self.pixels[within(y, self.height) * self.width + within(x, self.width)]
    }

    /// Changes a pixel; beyond the border, nothing.
    pub fn set(&mut self, x: i32, y: i32, value: u8) {
        let is_within = (0..self.width as i32).contains(&x) && (0..self.height as i32).contains(&y);
        if is_within {
            self.pixels[y as usize * self.width + x as usize] = value;
        }
    }

    /// Appends it to a file of pictures.
    pub fn write(&self, to: &mut Vec<u8>) {
        write!(to, "P5\n{} {}\n255\n", self.width, self.height).expect("memory takes everything");
        to.extend_from_slice(&self.pixels);
    }

    /// All pictures of such a file.
    ///
    /// # Errors
    /// Says at which byte it is none.
    pub fn read_all(bytes: &[u8]) -> Result<Vec<Picture>, String> {
        let mut pictures = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let wrong = |what: &str| format!("byte {at}: {what}");
            let head = bytes[at..].splitn(4, |&byte| byte == b'\n').collect::<Vec<_>>();
            let [b"P5", size, b"255", rest] = head[..] else {
                return Err(wrong("no head of a binary PGM with 255 greys"));
            };
            let size = std::str::from_utf8(size).ok().and_then(|size| size.split_once(' '));
            let size =
                size.and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
            let (width, height): (usize, usize) = size.ok_or_else(|| wrong("no size"))?;
            let count =
                width.checked_mul(height).filter(|&count| (1..=rest.len()).contains(&count));
            let count = count.ok_or_else(|| wrong("fewer pixels than it says"))?;
            pictures.push(Picture { width, height, pixels: rest[..count].to_vec() });
            at = bytes.len() - rest.len() + count;
        }
        Ok(pictures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_off_is_refused() {
        let mut first = Picture::new(3, 2);
        first.set(2, 1, 10);
        // A pixel that looks like the end of a line.
        first.set(0, 0, b'\n');
        first.set(-1, 0, 9);
        let second = Picture { width: 1, height: 1, pixels: vec![7] };
        let mut file = Vec::new();
        first.write(&mut file);
        second.write(&mut file);
        assert_eq!(Picture::read_all(&file), Ok(vec![first.clone(), second]));
        assert!(
            Picture::read_all(&file[..file.len() - 1])
                .is_err_and(|why| why.contains("fewer pixels"))
        );
        assert!(Picture::read_all(b"P6\n1 1\n255\nx").is_err());
        assert_eq!((first.near(9, 9), first.near(-4, 0)), (10, b'\n'));
    }
}
