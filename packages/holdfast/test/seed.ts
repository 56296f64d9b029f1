/** A new seed every time, so that every run of the tests looks elsewhere; HOLDFAST_MODEL_SEED repeats one. */
export function newSeed(): number {
  return Number(process.env.HOLDFAST_MODEL_SEED ?? Date.now() % 2 ** 31)
}
