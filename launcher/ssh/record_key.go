package ssh

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skeema/knownhosts"
	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// recording excludes the other goroutines of this process. The lock on the file excludes
// other processes, if the file system has locks.
var recording sync.Mutex

// lockTimeout bounds the wait for another process that records a key.
const lockTimeout = 10 * time.Second

// record adds the key of a host to the user's known_hosts. If another process was first,
// the key that it recorded counts.
func (k *hostKeys) record(remote net.Addr, key gossh.PublicKey) error {
	recording.Lock()
	defer recording.Unlock()
	file, err := openLocked(k.files[0])
	if err != nil {
		return fmt.Errorf("record the host key: %w", err)
	}
	defer func() { _ = file.Close() }() // the write was checked; this releases the lock
	db, err := openKnown(k.files)
	if err != nil {
		return err
	}
	if err := k.judge(db, remote, key); err == nil || !isUnknown(err) {
		return err
	}
	if err := appendLine(file, knownhosts.Line([]string{k.address}, key)); err != nil {
		return fmt.Errorf("record the host key in %s: %w", k.files[0], err)
	}
	k.cfg.Notice(fmt.Sprintf("host %s: new host key %s %s recorded in %s",
		k.cfg.Host, key.Type(), gossh.FingerprintSHA256(key), k.files[0]))
	return nil
}

func isUnknown(err error) bool {
	refusal, is := err.(*HostKeyError)
	return is && !refusal.Changed()
}

// openLocked opens the file for appending and locks it. It makes the file and its folder
// if they are missing.
func openLocked(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	giveUp := time.Now().Add(lockTimeout)
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			// Without a lock on this file system a line may be written twice,
			// which does no harm.
			return file, nil
		}
		if time.Now().After(giveUp) {
			_ = file.Close() // nothing was written
			return nil, fmt.Errorf("%s is locked by another process", path)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// appendLine writes one line. If the file does not end in a newline it adds one first.
func appendLine(file *os.File, line string) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	start := ""
	if size := info.Size(); size > 0 && info.Mode().IsRegular() {
		last := make([]byte, 1)
		if _, err := file.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			start = "\n"
		}
	}
	_, err = file.WriteString(start + line + "\n")
	return err
}
