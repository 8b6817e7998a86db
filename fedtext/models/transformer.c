/* Blocks of transformers whose weights do not change, forward and backward (engine native; models/native_block.py).

   A block adds up twice: first what its attention makes of its inputs, then what its feed-forward part makes of that sum.
   LayerNorm comes after either sum (BERT, DistilBERT), or before either part (GPT-2).

   Legend: S tokens, D width of the block, F of the feed-forward part, R rank of an adapter. */

#include "adapted.h"
#include "attention.h"
#include "between.h"

enum { QUERY, KEY, VALUE, OUTPUT, UP, DOWN, LAYERS };
enum { ATTENTION, FORWARD, PARTS };

/* A sum, of the inputs of a part and of its outputs after dropout, and the LayerNorm of the part. */
typedef struct {
    const real *weight, *bias;
    double least_variance, share; /* the latter: factor of what dropout leaves */
    uint64_t key, limit;          /* of dropout, as in draws.h; limit 0: it leaves all */
} sum;

typedef struct {
    place tokens, first, kind; /* first: LayerNorm comes before either part; kind: of GELU */
    adapted layers[LAYERS];
    sum sums[PARTS];
    layout attention;
} block;

/* What the gradients need. */
typedef struct {
    real *read[PARTS];                    /* by a part, if LayerNorm comes first */
    real *normal[PARTS], *factors[PARTS]; /* of LayerNorm */
    real *parts[3], *mixed, *middle;      /* queries, keys and values; what attention and the first sum make of them */
    real *slopes, *active;                /* derivatives of GELU, and if the next layer is adapted its outputs */
    real *between[LAYERS];                /* of the adapters */
} kept;

#define ARRAYS 32 /* more than there are in one piece of memory, of which each begins with a whole vector */

static real *take(real **from, place count) {
    real *found = *from;
    *from += whole_vectors(count);
    return found;
}

static place width(const block *of) { return of->layers[QUERY].inputs; }

static place numbers_of(const block *of) { return whole_vectors(of->tokens * width(of)); }

static place inner_width(const block *of) { return of->layers[UP].outputs; }

static place larger(place one, place other) { return one > other ? one : other; }

enum { KEEPING, ALONE, BACKWARD }; /* calls: forward, with gradients to follow or not, and backward */

/* The elements of what is kept of a block. */
static place kept_of(const block *of, place call) {
    int parts = call == ALONE ? 1 : PARTS;
    place early = 4 * width(of), each = (1 + parts) * width(of) + parts;
    each += call == ALONE ? larger(early, inner_width(of)) : early + inner_width(of);
    each += of->first ? parts * width(of) : 0;
    each += of->layers[DOWN].rank ? inner_width(of) : 0;
    for (int i = 0; i < LAYERS; i++) each += of->layers[i].rank;
    return whole_vectors(of->tokens * each + ARRAYS * LANES);
}

/* With ALONE both parts have the same memory, and the second one's that of what attention has read. */
static kept kept_in(const block *of, real *memory, place call) {
    place rows = of->tokens, numbers = rows * width(of), inner = rows * inner_width(of);
    kept all;
    for (int part = 0; part < PARTS; part++) {
        int shared = part && call == ALONE;
        all.read[part] = shared ? all.read[0] : of->first ? take(&memory, numbers) : 0;
        all.normal[part] = shared ? all.normal[0] : take(&memory, numbers);
        all.factors[part] = shared ? all.factors[0] : take(&memory, rows);
    }
    all.middle = take(&memory, numbers);
    real *early = memory;
    for (int i = 0; i < 3; i++) all.parts[i] = take(&memory, numbers);
    all.mixed = take(&memory, numbers);
    if (call == ALONE) all.slopes = take(&early, inner), memory = early > memory ? early : memory;
    else all.slopes = take(&memory, inner);
    all.active = of->layers[DOWN].rank ? take(&memory, inner) : 0;
    for (int i = 0; i < LAYERS; i++) all.between[i] = take(&memory, rows * of->layers[i].rank);
    return all;
}

static place largest_rank(const block *of) {
    place most = 0;
    for (int i = 0; i < LAYERS; i++) most = larger(most, of->layers[i].rank);
    return most;
}

static place scratch_of(const block *of, place call) {
    place numbers = inner_width(of) + (call == BACKWARD ? 5 * width(of) + largest_rank(of) : width(of));
    place products = attention_memory(&of->attention, call == BACKWARD ? 3 : 1);
    for (int i = 0; i < LAYERS; i++) products = larger(products, adapted_memory(&of->layers[i]));
    return of->tokens * numbers + ARRAYS * LANES + products + (call == ALONE ? kept_of(of, call) : 0);
}

/* What a part reads. */
static const real *read_by(const block *of, int part, const kept *all, const real *inputs) {
    const sum *each = &of->sums[part];
    if (!of->first) return inputs;
    normalize(of->tokens, width(of), inputs, each->weight, each->bias, each->least_variance, all->normal[part],
              all->factors[part], all->read[part]);
    return all->read[part];
}

/* The outputs of a sum; the values of its part change. */
static void add_up(const block *of, int part, const kept *all, const real *inputs, real *values, real *outputs) {
    const sum *each = &of->sums[part];
    place numbers = of->tokens * width(of);
    real *sums = of->first ? outputs : values;
    if (each->limit) add_dropped(numbers, each->key, each->limit, each->share, values, inputs, sums);
    else
        for (place i = 0; i < numbers; i++) sums[i] = inputs[i] + values[i];
    if (!of->first)
        normalize(of->tokens, width(of), values, each->weight, each->bias, each->least_variance, all->normal[part],
                  all->factors[part], outputs);
}

/* The outputs, which may replace the inputs. */
static void block_outputs(const block *of, const real *inputs, real *memory, place call, real *scratch, real *outputs) {
    const kept all = kept_in(of, memory, call);
    real *values = take(&scratch, of->tokens * width(of));
    real *active = all.active ? all.active : take(&scratch, of->tokens * inner_width(of));
    const real *read = read_by(of, ATTENTION, &all, inputs);
    for (int i = QUERY; i <= VALUE; i++) adapted_outputs(&of->layers[i], read, scratch, all.between[i], all.parts[i]);
    attend(&of->attention, all.parts[0], all.parts[1], all.parts[2], scratch, all.mixed);
    adapted_outputs(&of->layers[OUTPUT], all.mixed, scratch, all.between[OUTPUT], values);
    add_up(of, ATTENTION, &all, inputs, values, all.middle);
    read = read_by(of, FORWARD, &all, all.middle);
    adapted_outputs(&of->layers[UP], read, scratch, all.between[UP], all.slopes);
    gelu(of->kind, of->tokens * inner_width(of), all.slopes, active);
    adapted_outputs(&of->layers[DOWN], active, scratch, all.between[DOWN], values);
    add_up(of, FORWARD, &all, all.middle, values, outputs);
}

/* The gradients of the values of a part, perhaps in `memory`, from those of the outputs of its sum, which become those of
   the sum. */
static const real *of_values(const block *of, int part, const kept *all, real *grads, real *memory) {
    const sum *each = &of->sums[part];
    if (!of->first)
        normalize_back(of->tokens, width(of), all->normal[part], all->factors[part], each->weight, grads);
    if (!each->limit) return grads;
    add_dropped(of->tokens * width(of), each->key, each->limit, each->share, grads, 0, memory);
    return memory;
}

/* Add the gradients of what a part read to those of its sum, if LayerNorm is between them. */
static void add_read(const block *of, int part, const kept *all, real *read, real *grads) {
    if (!of->first) return;
    normalize_back(of->tokens, width(of), all->normal[part], all->factors[part], of->sums[part].weight, read);
    for (place i = 0; i < of->tokens * width(of); i++) grads[i] = read[i] + grads[i];
}

static int moves(const block *of, int first, int last) {
    int found = 0;
    for (int i = first; i <= last; i++) found |= of->layers[i].grad_a || of->layers[i].grad_b;
    return found;
}

/* From the gradients of the outputs to those of the factors, and to those of the inputs, which replace them: all if
   `further`. memory: as `block_outputs` left it. */
static void block_gradients(const block *of, const real *inputs, real *memory, int further, real *scratch, real *grads) {
    const kept all = kept_in(of, memory, KEEPING);
    place numbers = of->tokens * width(of), inner = of->tokens * inner_width(of);
    real *values = take(&scratch, numbers), *mixed = take(&scratch, numbers), *raised = take(&scratch, inner);
    real *between = take(&scratch, of->tokens * largest_rank(of)), *parts[3];
    for (int i = 0; i < 3; i++) parts[i] = take(&scratch, numbers);
    int to_parts = further || moves(of, QUERY, VALUE), to_sum = to_parts || moves(of, OUTPUT, OUTPUT);
    /* With LayerNorm before a part, those of what it reads are apart from those of the sum. */
    real *read = of->first ? values : grads;
    const real *start = of->first ? 0 : grads, *from = of_values(of, FORWARD, &all, grads, values);
    adapted_gradients(&of->layers[DOWN], all.active, all.between[DOWN], from, 0, scratch, between, raised);
    for (place i = 0; i < inner; i++) raised[i] *= all.slopes[i];
    from = of->first ? all.read[FORWARD] : all.middle;
    adapted_gradients(&of->layers[UP], from, all.between[UP], raised, start, scratch, between, to_sum ? read : 0);
    if (!to_sum) return;
    add_read(of, FORWARD, &all, read, grads);
    from = of_values(of, ATTENTION, &all, grads, values);
    adapted_gradients(&of->layers[OUTPUT], all.mixed, all.between[OUTPUT], from, 0, scratch, between, to_parts ? mixed : 0);
    if (!to_parts) return;
    attend_back(&of->attention, all.parts[0], all.parts[1], all.parts[2], mixed, scratch, parts[0], parts[1], parts[2]);
    from = of->first ? all.read[ATTENTION] : inputs;
    for (int i = QUERY; i <= VALUE; i++, start = read)
        adapted_gradients(&of->layers[i], from, all.between[i], parts[i], start, scratch, between, further ? read : 0);
    if (further) add_read(of, ATTENTION, &all, read, grads);
}

/* The elements of what blocks keep for their gradients, with room for their outputs. */
place kept_size(place count, const block *blocks) {
    place sum = 0;
    for (place i = 0; i < count; i++) sum += kept_of(&blocks[i], KEEPING) + numbers_of(&blocks[i]);
    return sum;
}

/* The elements of the memory of a call. */
place scratch_size(place count, const block *blocks, place call) {
    place most = 0;
    for (place i = 0; i < count; i++) most = larger(most, scratch_of(&blocks[i], call));
    return most;
}

/* The outputs of blocks, each of which reads those of the one before. memory: of kept_size; null: no gradients
   follow. */
void blocks_outputs(place count, const block *blocks, const real *inputs, real *memory, real *scratch, real *outputs) {
    for (place i = 0; i < count; i++) {
        place call = memory ? KEEPING : ALONE, size = kept_of(&blocks[i], call), numbers = numbers_of(&blocks[i]);
        real *to = memory && i + 1 < count ? memory + size : outputs;
        block_outputs(&blocks[i], inputs, memory ? memory : scratch, call, memory ? scratch : scratch + size, to);
        inputs = to;
        if (memory) memory += size + numbers;
    }
}

/* The gradients of the factors, and in place of those of the outputs those of the inputs, if they are wanted. */
void blocks_gradients(place count, const block *blocks, const real *inputs, real *memory, place wanted, real *scratch,
                      real *grads) {
    place first = 0; /* with anything that moves */
    while (!wanted && first < count && !moves(&blocks[first], QUERY, DOWN)) first++;
    memory += kept_size(count, blocks);
    for (place i = count - 1; i >= first; i--) {
        place size = kept_of(&blocks[i], KEEPING), numbers = numbers_of(&blocks[i]);
        memory -= size + numbers;
        block_gradients(&blocks[i], i ? memory - numbers : inputs, memory, wanted || i > first, scratch, grads);
    }
}
