// Package autotune decides, while training goes on, which shard holder has
// which rows of the embedding tables, and reports what every variable sends.
//
// The workers meet after steps that all of them know beforehand. At a meeting
// they add up their statistics, the chief decides, and all workers carry out its
// plan. The chief tries numbers of partitions and keeps the fastest (package
// partition), gives every holder about as many bytes to carry, and with --arch
// auto chooses between servers and workers (package cost). The plan changes
// where rows are. It changes no value.
//
//	pieces, err := autotune.Place(declaration, least, partitions) // before the first step
//	t := autotune.New(autotune.Config{...})                       // nil: nothing can be tuned
//	... every step: t.Pulled(table, rows), t.Gradient(step, variable, bytes)
//	moved, err := t.After(ctx, steps, took)                       // after every step
//	t.Close()                                                     // after the last one
//
// # What it refuses
//
// It tunes synchronous training only: in other modes there is no step after
// which all workers can meet. It moves no rows itself: [Holders] does.
package autotune
