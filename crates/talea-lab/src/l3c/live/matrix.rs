//! Matrix program, which computes and counts endless products of random 10 by 10 matrices.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::rng::Rng;
use talea_exec::JobBody;

const SIZE: usize = 10;
type Matrix = [[u32; SIZE]; SIZE];

/// Returns a job body that multiplies until the run is over.
pub(super) fn products(count: &AtomicU64) -> JobBody<'_> {
    Box::new(move |_, over| {
        multiply(|| {
            count.fetch_add(1, Ordering::Relaxed);
            !over.load(Ordering::Relaxed)
        });
    })
}

/// Multiplies while `goes_on` holds after a product.
pub(super) fn multiply(mut goes_on: impl FnMut() -> bool) {
    let mut rng = Rng::new(2017);
    let (mut a, mut b) = (random(&mut rng), random(&mut rng));
    loop {
        let product = times(&a, &b);
        a = b;
        b = product;
        // A new random row, so that the products are not powers of the first two matrices.
        b[0] = random(&mut rng)[0];
        if !goes_on() {
            black_box(b);
            return;
        }
    }
}

fn random(rng: &mut Rng) -> Matrix {
    [[(); SIZE]; SIZE].map(|row| row.map(|()| rng.next() as u32))
}

fn times(a: &Matrix, b: &Matrix) -> Matrix {
    let mut product = [[0_u32; SIZE]; SIZE];
    for row in 0..SIZE {
        for column in 0..SIZE {
            let term = |k: usize| a[row][k].wrapping_mul(b[k][column]);
            product[row][column] = (0..SIZE).map(term).fold(0, u32::wrapping_add);
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_with_the_unit_matrix_is_the_matrix() {
        let a = random(&mut Rng::new(7));
        let mut unit = [[0; SIZE]; SIZE];
        (0..SIZE).for_each(|at| unit[at][at] = 1);
        assert_eq!((times(&a, &unit), times(&unit, &a)), (a, a));
    }
}
