//! Grayscale pictures, and files with a sequence of pictures in binary PGM (netpbm).

use std::io::Write;

/// A grayscale picture; 0 is black and 255 is white.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Number of pixels in a row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// Pixels row by row from the top.
    pub pixels: Vec<u8>,
}

impl Picture {
    /// Returns a black picture.
    pub fn new(width: usize, height: usize) -> Picture {
        Picture { width, height, pixels: vec![0; width * height] }
    }

    /// Returns the pixel at a position; beyond the border, the nearest pixel.
    pub fn nearest(&self, x: i32, y: i32) -> u8 {
        let within = |at: i32, size: usize| at.clamp(0, size as i32 - 1) as usize;
        self.pixels[within(y, self.height) * self.width + within(x, self.width)]
    }

    /// Sets a pixel; a position beyond the border has no effect.
    pub fn set(&mut self, x: i32, y: i32, value: u8) {
        let is_within = (0..self.width as i32).contains(&x) && (0..self.height as i32).contains(&y);
        if is_within {
            self.pixels[y as usize * self.width + x as usize] = value;
        }
    }

    /// Appends the picture to the bytes of a file.
    pub fn write(&self, to: &mut Vec<u8>) {
        write!(to, "P5\n{} {}\n255\n", self.width, self.height)
            .expect("a write to memory succeeds");
        to.extend_from_slice(&self.pixels);
    }

    /// Reads all pictures of a file.
    ///
    /// # Errors
    /// Returns the offset of the first invalid picture and the reason.
    pub fn read_all(bytes: &[u8]) -> Result<Vec<Picture>, String> {
        let mut pictures = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let invalid = |reason: &str| format!("byte {at}: {reason}");
            let head = bytes[at..].splitn(4, |&byte| byte == b'\n').collect::<Vec<_>>();
            let [b"P5", size, b"255", rest] = head[..] else {
                return Err(invalid("not the header of a binary PGM with the maximum 255"));
            };
            let size = std::str::from_utf8(size).ok().and_then(|size| size.split_once(' '));
            let size =
                size.and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
            let (width, height): (usize, usize) =
                size.ok_or_else(|| invalid("the size is invalid"))?;
            let count =
                width.checked_mul(height).filter(|&count| (1..=rest.len()).contains(&count));
            let count = count.ok_or_else(|| invalid("fewer pixels than the header states"))?;
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
    fn written_pictures_are_read_and_truncated_ones_are_refused() {
        let mut first = Picture::new(3, 2);
        first.set(2, 1, 10);
        // The value of a pixel may equal a line feed.
        first.set(0, 0, b'\n');
        first.set(-1, 0, 9);
        let second = Picture { width: 1, height: 1, pixels: vec![7] };
        let mut file = Vec::new();
        first.write(&mut file);
        second.write(&mut file);
        assert_eq!(Picture::read_all(&file), Ok(vec![first.clone(), second]));
        assert!(
            Picture::read_all(&file[..file.len() - 1])
                .is_err_and(|reason| reason.contains("fewer pixels"))
        );
        assert!(Picture::read_all(b"P6\n1 1\n255\nx").is_err());
        assert_eq!((first.nearest(9, 9), first.nearest(-4, 0)), (10, b'\n'));
    }
}
