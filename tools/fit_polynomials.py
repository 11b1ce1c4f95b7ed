#!/usr/bin/env python3
"""Prints the polynomial coefficients of src/engine/compute/cpu/simd/math_impl.h.

Each function is split into a few exact leading terms and a smooth remainder; the remainder is interpolated at Chebyshev
nodes (within a small factor of minimax) in exact rationals and rounded to binary32. Needs nothing but Python.
"""
import math
import struct
from fractions import Fraction


def series(coefficient, x, terms=30):
    """Sum of coefficient(n) * x**n, exact enough for |x| <= 1."""
    total, power = Fraction(0), Fraction(1)
    for n in range(terms):
        total += coefficient(n) * power
        power *= x
    return total


def interpolate(f, low, high, degree):
    count = degree + 1
    nodes = [Fraction((low + high) / 2 + (high - low) / 2 * math.cos(math.pi * (2 * i + 1) / (2 * count))) for i in range(count)]
    rows = [[node ** p for p in range(count)] + [f(node)] for node in nodes]
    for i in range(count):
        for j in range(count):
            if j != i:
                factor = rows[j][i] / rows[i][i]
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i])]
    return [float(rows[i][count] / rows[i][i]) for i in range(count)]


def tanh_series(count):
    """Coefficients t_n of tanh(x) = x + sum t_n x**(2n+3), from tanh' = 1 - tanh**2."""
    odd = [Fraction(1)]
    for n in range(1, count + 1):
        square = sum(odd[i] * odd[n - 1 - i] for i in range(n))
        odd.append(-square / (2 * n + 1))
    return odd[1:]


def show(name, coefficients):
    for i, value in enumerate(coefficients):
        single = struct.unpack("f", struct.pack("f", value))[0]
        print(f"{name}[{i}] = {single.hex()}")


def main():
    factorial = math.factorial
    half_ln2 = 0.3466
    show("exp", interpolate(lambda r: series(lambda n: Fraction(1, factorial(n + 2)), r), -half_ln2, half_ln2, 4))
    low, high = math.sqrt(0.5) - 1, math.sqrt(2) - 1
    show("log1p", interpolate(lambda f: series(lambda n: Fraction((-1) ** n, n + 3), f, 60), low, high, 8))
    reach = 0.82 ** 2  # (pi/4 plus what the first reduction step leaves at |x| = 2^20) squared
    show("sin", interpolate(lambda t: series(lambda n: Fraction((-1) ** (n + 1), factorial(2 * n + 3)), t), 0.0, reach, 2))
    show("cos", interpolate(lambda t: series(lambda n: Fraction((-1) ** n, factorial(2 * n + 4)), t), 0.0, reach, 2))
    tanh = tanh_series(60)
    show("tanh", interpolate(lambda t: series(lambda n: tanh[n], t, 60), 0.0, 0.625 ** 2, 4))
    slope = Fraction(2 / math.sqrt(math.pi))  # erf x = x + x * small(x**2) below 1, 1 - exp(large(x)) above
    show("erf_small", interpolate(lambda t: slope * series(lambda n: Fraction((-1) ** n, (2 * n + 1) * factorial(n)), t) - 1, 0.0, 1.0, 6))
    show("erf_large", interpolate(lambda x: Fraction(math.log(math.erfc(float(x)))), 1.0, 4.0, 8))


main()
