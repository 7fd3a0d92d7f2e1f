/* Squared norms of the gradients of a linear layer that is applied to each position of a sequence.
 *
 * Such a gradient is a sum over positions of (gradient out) x (activation in), and its square one over pairs of them: the
 * product of the two gradients times that of the two activations. In double precision, because what it adds up to may
 * almost cancel; every pair once, which no library's matrix product offers, and nothing of a chunk in doubles but a few
 * features of a sample.
 * Compiled by compiled.py for the machine it runs on; every sum has one order, whatever the chunk.
 */

#include "lanes.h"

enum { PAIR = LANES / 2, WIDTH = 3 }; /* doubles of a vector; vectors of positions whose sums stay in registers */
enum { FEATURES = 64 };               /* at hand at once */

typedef double wide __attribute__((vector_size(PAIR * sizeof(double)), aligned(sizeof(double)), may_alias));
typedef float narrow __attribute__((vector_size(PAIR * sizeof(float)), aligned(sizeof(float)), may_alias));

static int64_t padded(int64_t positions) { return (positions + LANES - 1) / LANES * LANES; }

/* Some features of all positions as doubles, [feature, position]; zeros beyond the last of either. */
static void widen(const float *from, int64_t positions, int64_t features, int64_t row, double *to) {
  for (int64_t p = 0; p < padded(positions); p += LANES)
    for (int64_t f = 0; f < FEATURES; f += LANES) {
      const int64_t there = min(positions - p, LANES), wanted = min(features - f, LANES);
      float block[LANES * LANES] = {};
      vec turned[LANES];
      for (int64_t r = 0; r < there && wanted > 0; r++)
        memcpy(block + r * LANES, from + (p + r) * row + f, wanted * sizeof(float));
      transpose(block, LANES, turned);
      for (int l = 0; l < LANES; l++)
        for (int half = 0; half < LANES; half += PAIR) {
          const narrow values = *(const narrow *)((const float *)&turned[l] + half);
          *(wide *)(to + (f + l) * padded(positions) + p + half) = __builtin_convertvector(values, wide);
        }
    }
}

/* Adds the products of PAIR positions with those of a few vectors. */
static inline __attribute__((always_inline)) void add_products(const int width, const double *left, const double *right,
                                                               int64_t pitch, double *products) {
  wide total[PAIR][WIDTH];
  for (int l = 0; l < PAIR; l++)
    for (int w = 0; w < width; w++) total[l][w] = *(const wide *)(products + l * pitch + w * PAIR);
  for (int f = 0; f < FEATURES; f++, left += pitch, right += pitch)
#pragma GCC unroll 3
    for (int w = 0; w < width; w++) {
      const wide value = *(const wide *)(right + w * PAIR);
#pragma GCC unroll 8
      for (int l = 0; l < PAIR; l++) total[l][w] += left[l] * value;
    }
  for (int l = 0; l < PAIR; l++)
    for (int w = 0; w < width; w++) *(wide *)(products + l * pitch + w * PAIR) = total[l][w];
}

/* Products of all pairs of positions, [position, position]; only those with a position of the same vector or later. */
static void multiply(const float *from, int64_t positions, int64_t features, double *hand, double *products) {
  const int64_t pitch = padded(positions);
  memset(products, 0, pitch * pitch * sizeof(double));
  for (int64_t f = 0; f < features; f += FEATURES) {
    widen(from + f, positions, features - f, features, hand);
    for (int64_t p = 0; p < pitch; p += PAIR)
      for (int64_t q = p; q < pitch; q += WIDTH * PAIR) {
        double *const to = products + p * pitch + q;
        switch (min(WIDTH, (pitch - q) / PAIR)) { /* constants keep the sums in registers */
          case 1: add_products(1, hand + p, hand + q, pitch, to); break;
          case 2: add_products(2, hand + p, hand + q, pitch, to); break;
          default: add_products(3, hand + p, hand + q, pitch, to);
        }
      }
  }
}

/* How many doubles of scratch memory a call needs. */
int64_t positions_scratch(int64_t positions) { return padded(positions) * (FEATURES + 2 * padded(positions)); }

/* squares [sample] of a [sample, position, in feature] and g [sample, position, out feature]. */
void positions_squares(int64_t samples, int64_t positions, int64_t ins, int64_t outs, const float *a, const float *g,
                       double *scratch, double *squares) {
  const int64_t pitch = padded(positions);
  double *const of_inputs = scratch + pitch * FEATURES, *const of_outputs = of_inputs + pitch * pitch;
  for (int64_t n = 0; n < samples; n++) {
    multiply(a + n * positions * ins, positions, ins, scratch, of_inputs);
    multiply(g + n * positions * outs, positions, outs, scratch, of_outputs);
    double once = 0, twice = 0;
    for (int64_t p = 0; p < pitch; p++)
      for (int64_t q = p / PAIR * PAIR; q < pitch; q++) {
        const double both = of_inputs[p * pitch + q] * of_outputs[p * pitch + q];
        if (q / PAIR == p / PAIR)
          once += both;
        else
          twice += both;
      }
    squares[n] = once + 2 * twice;
  }
}
