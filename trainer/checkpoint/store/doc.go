// Package store saves the checkpoints of a job on several hosts, and restores
// training from the files that are left after a restart. Every task has one
// [Store].
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
// The store of the chief (worker 0) makes all decisions. The other tasks'
// stores keep a connection of purpose "checkpoint" to it as long as the job
// lasts. Once all are connected, the chief finds out which tasks share a
// folder: every task has created a probe (a folder with a random name) in its
// folder, and reports which probes it sees. Tasks that share a folder form a
// group. They run on one host, or on several hosts with a common file system.
//
// # A save
//
// The chief announces a save and what each task must write. The store of every
// shard holder (a task that stores variables) writes a file in the background
// and reports that to the chief. The chief then makes a task of another group
// copy the file; this task is the file's buddy. After all reports, one task of
// every group writes the manifest, which makes the checkpoint valid. Then old
// checkpoints are removed.
//
// A failed save is logged as a warning. The tasks delete what they have
// written, training continues, and earlier checkpoints remain. If a task is
// lost during a save, the save fails only if it needs something from that
// task. Later saves do without the task.
//
// # A restore
//
// Package choose selects the checkpoint from which training resumes. Each
// shard holder then reads the ranges that it needs, from its own folder or
// from a task that has the file. So a job can resume with any number of
// servers and workers.
//
// # What it refuses
//
// Messages name checkpoints and files, never paths. No task writes into the
// folder of another task; for example, the buddy of a file fetches it. All
// waiting has a timeout. To wait for a task it is Config.Silence; to wait for
// a disk it grows with the number of bytes. The store cannot interrupt a write
// that hangs in the operating system: Close returns without waiting for such a
// write.
package store
