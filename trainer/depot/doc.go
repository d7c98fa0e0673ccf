// Package depot is a task's checkpoint folder and its dealings with the other
// tasks' folders: it saves a training on several hosts, finds out after a
// restart what is still there, and brings every owner what it needs of it.
//
//	d, err := depot.Open(ctx, depot.Config{Peers: config, Door: door, Cluster: spec, Dir: dir, Job: job})
//	defer d.Close()
//
//	m, err := d.Choose(ctx, fits) // the chief; nil: nothing to go on from
//	m, err := d.Chosen(ctx)       // the others
//	... owner.ServerConfig{Save: d.Save, Restore: d.Restore}
//	d.Restored()                  // a worker that has all that it needs
//
//	if !d.Busy() {                // the chief, between two steps
//		err = d.Expect(expected)
//		err = client.Save()   // every owner's hook calls d.Save
//	}
//	err = d.Wait(ctx)             // every task, before it ends in good order
//
// # Who does what
//
// The depot of the chief decides, the others stay connected to it as long as
// the job lasts, purpose "checkpoint". When all are there they find out whose
// folders are one folder: every task has put a file with a random name into
// its own and is asked which names it sees. Tasks that share a folder are a
// group. A group of its own is what a host has, or several hosts with one file
// system.
//
// # A save
//
// The chief announces a save and what belongs to it. Every owner's depot writes
// a file in the background and brings a copy of it to a task of another group,
// its buddy, over a connection of purpose "checkpoint-copy". When all have
// reported, one task of every group writes the manifest; with it the checkpoint
// exists. Then older checkpoints are removed. A save that fails is a warning:
// what there is of it is removed, the training goes on and the checkpoints
// before stay. A task that was lost has no part in later saves, and none takes it
// for its buddy; where nothing is wanted of it the one under way does without it.
//
// # A restore
//
// The chief goes from the newest checkpoint down until it finds one that is of
// this program and of which every file is held somewhere with the right sum,
// and says in the log what is wrong with those that it skips. Owners then read
// the ranges that they need, from their own folder or from one that holds the
// file, over a connection of purpose "checkpoint-read". So any number of
// servers and workers go on from any checkpoint.
//
// # What it refuses
//
// Paths of any kind from other tasks: names are those of checkpoints and of
// files in them, and a task can write only its own file, only while a save that
// it is part of is under way. It waits for no task for longer than that is
// silent, or than a slow disk takes for what is to be written. It cannot end a
// write that the operating system does not end: Close leaves it behind.
package depot
