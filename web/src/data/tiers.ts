/** The tier of file systems in memory: its figures are their limits, not those of the RAM. */
export const IN_MEMORY = "memory";

/**
 * The place of a tier among all, as in `baro top`: those on known devices and servers first, those
 * in memory last, which are mostly those of the system and of programs.
 */
const place = (tier: string): number => (tier === IN_MEMORY ? 2 : tier === "other" ? 1 : 0);

/** Orders tiers by their place, and those of one place by size. */
export const tierOrder = (a: { name: string; total: number }, b: { name: string; total: number }): number => place(a.name) - place(b.name) || b.total - a.total;
