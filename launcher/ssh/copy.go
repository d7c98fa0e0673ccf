package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pkg/sftp"
	"github.com/plx-run/plx/launcher/transport"
)

// sftpStart limits how long the SFTP handshake may take. Without a limit it
// could hang: if a shell start-up file prints text, the client may read it as
// the header of a long SFTP packet and wait for more.
const sftpStart = 15 * time.Second

// Copy writes the content of r to a new file on the host, with mode 0600. path
// must be absolute, and its directory must exist. Each call opens an SFTP
// session of its own, so cancelling ctx disturbs no other call. If the server
// allows no more sessions, Copy fails immediately.
//
// After an error an incomplete file may remain. Copy does not sync the file to
// disk.
func (c *Client) Copy(ctx context.Context, r io.Reader, path string) error {
	err := c.copy(ctx, r, path)
	if err == nil {
		return nil
	}
	err = c.explain(ctx, err)
	if transport.IsLost(err) {
		return err
	}
	return fmt.Errorf("host %s: copy to %s: %w", c.cfg.Host, path, err)
}

func (c *Client) copy(ctx context.Context, r io.Reader, path string) error {
	s, _, err := c.tryOpen(ctx, "subsystem", "sftp")
	if err != nil {
		return err
	}
	defer s.end() // closes the session, which also stops the goroutines of the sftp client
	sent := make(chan error, 2)
	late := time.AfterFunc(sftpStart, func() { sent <- fmt.Errorf("the host's sftp has not started within %v", sftpStart) })
	defer late.Stop()
	c.workers.start(func() {
		remote, err := sftp.NewClientPipe(s, s, sftp.UseConcurrentWrites(true))
		if !late.Stop() {
			return // the timer has fired, so copy returns its timeout error
		}
		if err != nil {
			// %v instead of %w hides an io.EOF in err: the end of sftp does
			// not mean that the SSH connection is lost.
			sent <- fmt.Errorf("start sftp: %v", err)
			return
		}
		sent <- upload(remote, r, path)
	})
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.stop:
		return errClientDone
	}
}

func upload(remote *sftp.Client, r io.Reader, path string) error {
	f, err := remote.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	if err = f.Chmod(0o600); err == nil { // set the mode before writing, since the content may be secret
		_, err = f.ReadFromWithConcurrency(r, 64)
	}
	return errors.Join(err, f.Close())
}
