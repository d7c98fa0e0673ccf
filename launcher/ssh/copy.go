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

// sftpStart bounds the start of the protocol: the output of a start-up file may look like
// the beginning of a long packet.
const sftpStart = 15 * time.Second

// Copy writes what r has to a new file, which only the user may read. path is absolute, and its
// folder must exist. Copy uses sftp over a session of its own, so that the end of ctx harms no
// other call. It does not wait for a session until another one ends.
//
// After an error a part of the file may be there. Copy does not flush the host's disk.
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
	defer s.end() // ends the goroutines of the sftp client too
	sent := make(chan error, 2)
	late := time.AfterFunc(sftpStart, func() { sent <- fmt.Errorf("the host's sftp has not started within %v", sftpStart) })
	defer late.Stop()
	c.workers.start(func() {
		remote, err := sftp.NewClientPipe(s, s, sftp.UseConcurrentWrites(true))
		if !late.Stop() {
			return // copy has returned, or is about to
		}
		if err != nil {
			sent <- fmt.Errorf("start sftp: %v", err) // that it has ended does not mean that the connection has
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
	if err = f.Chmod(0o600); err == nil { // before the content is written: it may be secret
		_, err = f.ReadFromWithConcurrency(r, 64)
	}
	return errors.Join(err, f.Close())
}
