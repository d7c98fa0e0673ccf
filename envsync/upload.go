package envsync

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"time"
)

const (
	// slowest is the least speed, in bytes per second, at which the host's
	// hashing and the reading back may go on.
	slowest = 1 << 20
	// tidyLimit bounds the removal of a failed upload.
	tidyLimit = 10 * time.Second
)

//go:embed blobs.sh
var blobsScript string

// onBlobs is a script that calls functions of blobs.sh.
func onBlobs(calls string) string {
	return "salt=" + rand.Text() + "\n" + blobsScript + "\n" + calls
}

// looked is what a host has.
type looked struct {
	missing bool // it lacks the blob
	gzip    bool // it can unpack what gzip packed
}

// look asks a host whether it lacks a blob. With shared it waits some seconds for
// it to show up. A blob that is there is hashed unless that was done since
// the host was booted and it has not changed since: after a power cut a file
// may have its size and not its content.
func look(ctx context.Context, h Host, b Blob, shared bool) (looked, error) {
	looking, cancel := context.WithTimeout(ctx, shortLimit)
	defer cancel()
	tries := 0
	if shared {
		tries = 5
	}
	out, err := script(looking, h, onBlobs(fmt.Sprintf("look_for %s %d %d\n", b.Sum, b.Size, tries)))
	if err != nil {
		return looked{}, homeTrouble(err)
	}
	said := map[string]bool{}
	for line := range strings.Lines(out) {
		said[strings.TrimSpace(line)] = true
	}
	has := said["have "+b.Sum] || said["check "+b.Sum] && right(ctx, h, b)
	return looked{!has, said["gzip"]}, nil
}

// right hashes a blob that is on the host. One that cannot be read is wrong
// too: if the host is gone, sending it will tell.
func right(ctx context.Context, h Host, b Blob) bool {
	ctx, cancel := context.WithTimeout(ctx, hashLimit(b.Size))
	defer cancel()
	sum, err := hashOn(ctx, h, b.Size, "check ", b.Sum)
	return err == nil && sum == b.Sum
}

// hashLimit bounds the work on a blob that the host has.
func hashLimit(size int64) time.Duration {
	return shortLimit + time.Duration(size/slowest)*time.Second
}

// upload is a blob on its way to a host.
type upload struct {
	Blob
	packed []byte // the content as gzip packed it; nil: it is sent as it is
	size   int64  // bytes to send
}

// newUpload prepares the upload of b. gzip tells that the host has that program.
func newUpload(b Blob, gzip bool) (*upload, error) {
	u := &upload{Blob: b, size: b.Size}
	if !gzip {
		return u, nil
	}
	var err error
	if u.packed, err = b.Packed(); u.packed != nil {
		u.size = int64(len(u.packed))
	}
	return u, err
}

// read returns the bytes to send.
func (u *upload) read() (io.ReadCloser, error) {
	if u.packed != nil {
		return io.NopCloser(bytes.NewReader(u.packed)), nil
	}
	content, err := u.open()
	if err != nil {
		return nil, fmt.Errorf("read it here: %w", err)
	}
	return content, nil
}

// temporaryName returns a name for a blob on its way, which look removes after a day.
func temporaryName(b Blob) string { return "." + b.Sum[:16] + "." + rand.Text() }

// run sends the blob to a temporary name, has its hash verified and gives it its name.
func (u *upload) run(ctx context.Context, h Host, tell func(sent int64)) error {
	content, err := u.read()
	if err != nil {
		return err
	}
	defer content.Close() // opened for reading: nothing to lose
	temporary := temporaryName(u.Blob)
	if from := (&telling{r: content, tell: tell}); u.packed != nil {
		err = unpack(ctx, h, from, temporary)
	} else {
		err = h.Copy(ctx, from, u.size, blobFolder+temporary, 0o700)
	}
	if err == nil {
		err = settle(ctx, h, u.Blob, temporary)
	} else {
		err = explain(ctx, h, u.Size, err)
	}
	if err != nil {
		tidy(ctx, h, temporary)
	}
	return err
}

// unpack has a host unpack what gzip packed, while it comes.
func unpack(ctx context.Context, h Host, packed io.Reader, temporary string) error {
	var errs bounded
	command := fmt.Sprintf("sh -c 'umask 077; exec gzip -dc >%s'", blobFolder+temporary)
	if err := h.Run(ctx, command, packed, io.Discard, &errs); err != nil {
		return fmt.Errorf("unpack it: %w: %s", err, short(errs.buf.String()))
	}
	return nil
}

// settle compares the hash of an upload, has it written to the disk and
// renames it.
func settle(ctx context.Context, h Host, b Blob, temporary string) error {
	ctx, cancel := context.WithTimeout(ctx, hashLimit(b.Size))
	defer cancel()
	sum, err := hashOn(ctx, h, b.Size, `digest "$blobs"/`, temporary)
	if err != nil {
		return fmt.Errorf("verify it: %w", err)
	}
	if sum != b.Sum {
		return fmt.Errorf("verify it: its SHA-256 on the host is %s, not %s: it was damaged on the way, or changed here while it was sent", short(sum), b.Sum)
	}
	_, err = script(ctx, h, onBlobs(fmt.Sprintf("settle %s %d %s\n", b.Sum, b.Size, temporary)))
	if err != nil {
		return fmt.Errorf("give it its name: %w", homeTrouble(err))
	}
	return nil
}

// hashOn returns the SHA-256 of a file in the blobs' folder, as the host
// computes it with call, or from reading the file back if the host cannot.
func hashOn(ctx context.Context, h Host, size int64, call, name string) (string, error) {
	out, err := script(ctx, h, onBlobs(call+name+"\n"))
	if err != nil {
		return "", err
	}
	if sum := strings.TrimSpace(out); sum != "none" {
		return sum, nil
	}
	back := &sizedHash{hash: sha256.New(), left: size + 1}
	var errs bounded
	if err := h.Run(ctx, "cat "+blobFolder+name, nil, back, &errs); err != nil {
		return "", fmt.Errorf("read it back: %w", err)
	}
	return hex.EncodeToString(back.hash.Sum(nil)), nil
}

// sizedHash hashes at most left bytes, so that a host cannot keep plx busy.
type sizedHash struct {
	hash hash.Hash
	left int64 // bytes that may still be written; Write fails if there are more
}

func (s *sizedHash) Write(p []byte) (int, error) {
	if s.left -= int64(len(p)); s.left < 0 {
		return 0, errors.New("the file on the host is larger than the blob")
	}
	return s.hash.Write(p)
}

// explain adds to the error of a failed Copy what the host can tell of its
// cause: sftp has no words for a full disk.
func explain(ctx context.Context, h Host, size int64, failed error) error {
	if ctx.Err() != nil {
		return failed
	}
	ctx, cancel := context.WithTimeout(ctx, tidyLimit)
	defer cancel()
	out, err := script(ctx, h, `LC_ALL=C; export LC_ALL; cd .plx/blobs || exit 1
probe=.probe.$$; trap 'rm -f "$probe"' EXIT
echo 1 | cat >"$probe" || exit 1
df -Pk . 2>/dev/null`)
	if err != nil {
		if plain := homeTrouble(err); plain != err {
			return fmt.Errorf("%w (%w)", plain, failed)
		}
		return failed // the host is gone: the first error tells more
	}
	if free, ok := freeKiB(out); ok && free < size>>10 {
		return fmt.Errorf("the home folder's file system has %d MiB left and %d MiB are needed: %w", free>>10, size>>20+1, failed)
	}
	return failed
}

// freeKiB reads the output of df -Pk.
func freeKiB(out string) (int64, bool) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	f := strings.Fields(lines[len(lines)-1])
	if len(lines) < 2 || len(f) < 4 {
		return 0, false
	}
	free, err := strconv.ParseInt(f[3], 10, 64)
	return free, err == nil && free >= 0
}

// tidy removes a failed upload. It also runs after ctx has ended; on a host
// that is gone the next look removes the file, a day later.
func tidy(ctx context.Context, h Host, temporary string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyLimit)
	defer cancel()
	_ = h.Run(ctx, "rm -f "+blobFolder+temporary, nil, io.Discard, io.Discard) // the host may be gone
}
