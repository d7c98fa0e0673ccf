// Package peers joins the tasks of a job: one listener per task, on which
// other tasks prove themselves and say what they come for.
//
//	door := peers.Open(listener, peers.Config{Self: self, Key: key, Workers: 4, Servers: 1, Logf: logf})
//	defer door.Close()
//	door.Handle("owner", func(p peers.Peer) { serve(p.Task, p.Conn) })
//
//	conn, err := peers.Dial(ctx, config, cluster.Task{Role: cluster.PS}, addr, "owner")
//
// # Names
//
// What a connection is for, its purpose, is part of what is proved: with the
// protocol of package cluster "worker:3/owner" proves itself to "ps:0/owner".
// So nobody can turn a connection to another purpose, and one port serves all.
//
// # What it refuses
//
// Whoever does not prove the secret of this job and generation, and tasks that
// the job does not have. A connection that comes before its purpose is handled
// waits, one per task and purpose; a second one is refused meanwhile. Floods
// of strangers cost bounded memory and a line a minute.
//
// It does not encrypt, sends no heartbeats and reads nothing after the proof:
// that is for package wire and its users.
package peers
