// Package embedded runs SSH servers inside this process, on 127.0.0.2,
// 127.0.0.3 and so on, so that a launch without hosts takes the same path as one
// with them.
//
//	cluster, err := embedded.Start(ctx, 2)
//	if err != nil {
//		return err
//	}
//	defer cluster.Close()
//	client, err := ssh.Dial(ctx, cluster.Configs()[0])
//
// Keys are made at the start and kept in memory only: nobody else can log in.
// Commands run as the user of this process, in the home and with the
// environment of it.
//
// It behaves as sshd does where plx can tell the difference: a command outlives
// its channel, exit statuses and signals are reported, SSH_CONNECTION is set.
// It refuses to do anything else that sshd does: no terminals, no forwarding,
// no passwords, no login shell and so no start-up files.
package embedded
