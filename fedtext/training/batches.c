/* The index arithmetic of a batch of one client (engine native; training/native_batches.py).

   Legend: N texts of the client, B of the batch, R rows of its table, T the most tokens of a text, S tokens of all
   texts, U distinct words, K directions. */

#include <string.h>

#include "../runtime/numbers.h"

/* Number the words of a batch in ascending order. Returns U.

   Outputs: words_U; the number of each token as numbers_BT, 0 beyond the length of a text, and as numbers_S, text after
   text. number_R is scratch: zeros, before and afterwards. */
place number(place texts, place width, const int32_t *tokens_N, const place *chosen, const place *lengths, place rows,
             place most, place *number_R, place *words, place *numbers_BT, place *numbers_S) {
    place found = 0;
    for (place text = 0; text < texts; text++)
        for (place i = 0; i < lengths[text]; i++) number_R[tokens_N[chosen[text] * width + i]] = 1;
    for (place row = 0; row < rows; row++)
        if (number_R[row]) {
            words[found] = row;
            number_R[row] = found++;
        }
    for (place text = 0; text < texts; text++, numbers_BT += most) {
        memset(numbers_BT, 0, most * sizeof(place));
        for (place i = 0; i < lengths[text]; i++)
            *numbers_S++ = numbers_BT[i] = number_R[tokens_N[chosen[text] * width + i]];
    }
    for (place u = 0; u < found; u++) number_R[words[u]] = 0;
    return found;
}

/* Arrange texts for a recurrent layer, as models/packing.py does: order_B, longest first; starts, T + 1 numbers, the
   texts of all earlier steps; and of each token place its word, word_S, and of each row its projected word, source_P. */
void arrange(place texts, place most, place directions, const place *lengths, const place *numbers_BT, place *order,
             place *starts, place *word_S, place *source) {
    memset(starts, 0, (most + 1) * sizeof(place));
    for (place text = 0; text < texts; text++) starts[lengths[text]]++;
    for (place length = most, longer = 0; length > 0; length--) { /* from counts to the first place of this length */
        place count = starts[length];
        starts[length] = longer;
        longer += count;
    }
    for (place text = 0; text < texts; text++) order[starts[lengths[text]]++] = text;
    /* now starts[length] is the number of texts of at least this length */
    for (place step = 0, start = 0, size; step <= most; step++, start += size) {
        size = step < most ? starts[step + 1] : 0;
        starts[step] = start;
        for (place slot = 0; slot < size; slot++) word_S[start + slot] = numbers_BT[order[slot] * most + step];
        for (place k = 0; k < directions; k++)
            for (place slot = 0; slot < size; slot++) {
                place text = order[slot], token = k ? lengths[text] - 1 - step : step;
                source[directions * start + k * size + slot] = numbers_BT[text * most + token] * directions + k;
            }
    }
}
