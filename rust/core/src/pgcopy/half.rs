//! IEEE 754 binary16 and binary32, by integer arithmetic that a compiler can vectorise.

/// Largest finite binary16. From 65520 on, rounding to nearest gives infinity.
pub(crate) const HALF_INFINITY: u16 = 0x7c00;

/// The nearest binary16 of a float32, ties to even (IEEE 754-2019, 4.3.1). Beyond 65520 the result is infinity.
#[must_use]
pub fn half_from_single(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let half = if magnitude > 0x7f80_0000 {
        0x7e00 // NaN stays a (quiet) NaN
    } else if magnitude >= 0x4780_0000 {
        u32::from(HALF_INFINITY) // 65536 and more
    } else if magnitude < 0x3880_0000 {
        // Below 2^-14 the result is subnormal, a multiple of 2^-24. That is the spacing of float32 from 0.5 to 1,
        // so adding 0.5 rounds at the right bit, in the processor's own mode: nearest, ties to even.
        (f32::from_bits(magnitude) + 0.5)
            .to_bits()
            .wrapping_sub(0.5_f32.to_bits())
    } else {
        // Drop 13 bits of the significand, rounding to even, and move the exponent's bias from 127 to 15.
        let odd = (magnitude >> 13) & 1;
        magnitude
            .wrapping_add(0xfff)
            .wrapping_add(odd)
            .wrapping_sub(112 << 23)
            >> 13
    };
    let [low, high, ..] = (sign | half).to_le_bytes(); // at most 16 bits are set
    u16::from_le_bytes([low, high])
}

/// The float32 of a binary16, exactly.
#[must_use]
pub fn single_from_half(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let exponent = u32::from((half >> 10) & 0x1f);
    let fraction = u32::from(half & 0x3ff);
    let magnitude = match exponent {
        0 => {
            // fraction * 2^-24: put the fraction under the exponent of 0.5, then subtract the 0.5.
            return f32::from_bits(
                sign | (f32::from_bits(0.5_f32.to_bits() | fraction) - 0.5).to_bits(),
            );
        }
        31 => 0x7f80_0000 | (fraction << 13),
        _ => ((exponent + 112) << 23) | (fraction << 13),
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification: among all finite halves and infinity, the nearest; of two the even one.
    fn nearest(value: f32) -> u16 {
        let magnitude = f64::from(value.abs());
        let best = (0..=HALF_INFINITY)
            .min_by(|&left, &right| {
                let distance = |half: u16| {
                    let exact = if half == HALF_INFINITY {
                        65536.0
                    } else {
                        f64::from(single_from_half(half))
                    };
                    (exact - magnitude).abs()
                };
                distance(left)
                    .total_cmp(&distance(right))
                    .then((left & 1).cmp(&(right & 1)))
            })
            .unwrap_or(0);
        best | if value.is_sign_negative() { 0x8000 } else { 0 }
    }

    #[test]
    fn every_half_survives() {
        for half in 0..=u16::MAX {
            let single = single_from_half(half);
            if single.is_nan() {
                assert!(half & 0x7c00 == 0x7c00 && half & 0x3ff != 0);
            } else {
                assert_eq!(half_from_single(single), half);
            }
        }
    }

    #[test]
    fn halves_are_what_the_standard_says() {
        for (half, single) in [
            (0x0001, 2.0_f32.powi(-24)),
            (0x0400, 2.0_f32.powi(-14)),
            (0x3c00, 1.0),
            (0x7bff, 65504.0),
        ] {
            assert_eq!(single_from_half(half).to_bits(), single.to_bits());
        }
    }

    #[test]
    fn neighbourhood_of_every_tie() {
        for half in 0..HALF_INFINITY {
            let next = if half + 1 == HALF_INFINITY {
                65536.0
            } else {
                single_from_half(half + 1)
            };
            let tie = f32::midpoint(single_from_half(half), next);
            let even = half + (half & 1);
            assert_eq!(half_from_single(tie), even);
            assert_eq!(half_from_single(f32::from_bits(tie.to_bits() - 1)), half);
            assert_eq!(
                half_from_single(f32::from_bits(tie.to_bits() + 1)),
                half + 1
            );
        }
    }

    #[test]
    fn any_single_goes_to_the_nearest() {
        let mut state = 1_u32;
        for _ in 0..300 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = f32::from_bits(state);
            if !value.is_nan() && value.abs() < 65536.0 {
                assert_eq!(half_from_single(value), nearest(value), "{value:e}");
            }
        }
        assert_eq!(half_from_single(f32::INFINITY), HALF_INFINITY);
        assert!(single_from_half(half_from_single(f32::NAN)).is_nan());
    }
}
