// Package store is a task's checkpoint store: it knows what all tasks' folders
// hold, saves a training on several hosts, and restores it from what is left
// after a restart.
//
//	s, err := store.Open(ctx, store.Config{Peers: config, Listener: listener, Cluster: spec, Dir: dir, Job: job})
//	defer s.Close()
//
//	m, err := s.Choose(ctx, fits) // the chief; nil: there is nothing to resume from
//	m, err := s.Chosen(ctx)       // the other tasks
//	... server.Config{Checkpoints: s}
//	s.Restored()                  // a worker that has restored everything
//
//	if !s.Busy() {                // the chief, between two steps
//		err = s.Expect(expected)
//		err = client.Save()   // every shard holder calls its s.Save
//	}
//	err = s.Wait(ctx)             // every task, before it ends in good order
//
// # Who does what
//
// The chief's store decides. The other stores stay connected to it as long as
// the job lasts, by connections of purpose "checkpoint". When all tasks are
// there, they find out which folders are one folder: every task has put a file
// with a random name into its folder, and reports which of these names it sees.
// Tasks that share a folder are a group: those of one host, or of several hosts
// with one file system.
//
// # A save
//
// The chief announces a save and what belongs to it. Every shard holder's store
// writes a file in the background and reports it. The chief then has a task of
// another group, the buddy, fetch a copy of the file. When all is reported, one
// task of every group writes the manifest; from then on the checkpoint exists.
// Then older checkpoints are removed.
//
// A save that fails is a warning. The tasks remove what they have written, the
// training continues, and earlier checkpoints stay. Later saves do without a
// task that was lost, and none chooses it as a buddy. A lost task does not fail
// the save that is under way if that save needs nothing from it.
//
// # A restore
//
// Package choose decides from which checkpoint the training resumes. Shard
// holders then read the ranges that they need, from their own folder or from a
// task that holds the file. So any number of servers and workers can resume from
// any checkpoint.
//
// # What it refuses
//
// It refuses paths of any kind from other tasks: names are those of checkpoints
// and of files in them. A task writes nothing into another's folder: it is asked
// for its own file, during a save in which it has a part. The store waits for no task longer than that task
// may be silent, or than a slow disk needs for what it writes. It cannot end a
// write that the operating system does not end: Close leaves such a write
// behind.
package store
