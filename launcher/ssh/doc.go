// Package ssh reaches one host: it runs commands there with streams, copies
// files to it, and closes.
//
//	client, err := ssh.Dial(ctx, ssh.Config{Host: "gpu03"})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	err = client.Run(ctx, "exec uname -a", nil, os.Stdout, os.Stderr)
//
// # What is believed
//
// A host is looked up in the user's ssh configuration (ssh -G where there is an
// ssh, a parser of the common keywords otherwise) and its key in known_hosts,
// always: StrictHostKeyChecking is not read. An unknown key is refused unless
// [Config].AcceptNewHostKeys is set, a key that differs from the recorded one
// is refused in any case. "~" is [Config].Home in every one of these files.
//
// # What is clean
//
// Commands are scripts for /bin/sh whatever the user's login shell is. What the
// shell's start-up files print never reaches the caller's writers.
//
// # What is bounded
//
// Dial and handshake have a deadline, a connection over which nothing came for
// [Config].DeadAfter is given up, and everything outstanding on it then returns
// a [LostError].
//
// # What it refuses to do
//
// It asks for no password or passphrase, allocates no terminal, forwards no
// agent and no port, sends no signal (many servers ignore the request) and does
// not kill what a command left running. It knows nothing of jobs or tasks, and
// redialling is for its callers.
package ssh
