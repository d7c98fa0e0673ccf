// Package policy says how the workers of a training wait for each other and
// where its variables are held. It is pure: it knows no network and no values.
//
// Each synchronisation mode is a [Mode]: sync, async and group, which have no state,
// are in mode.go, ssp and backup in files of their own. Other packages read a mode's fields through [Sync] and
// call the methods of the mode's state. That state is a [Pace] on every shard
// holder, a [Selection] on the first shard holder and a [Worker] on each worker.
// A mode may lack any of them. To add a mode, write its file and append the mode
// to the variable modes in parse.go.
//
//	s, err := policy.ParseSync("ssp:3")
//	s.Groups(8)       // 8: every worker is a group
//	s.InStep()        // false
//
// An [Architecture] is a name that says who holds dense variables and who holds
// sparse ones.
package policy
