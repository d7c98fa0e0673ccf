package envsync

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
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

// lookScript prints "have SUM" for every blob that is there with its size. It
// reads lines "SUM SIZE" after it. Other sizes are what a full disk or a lost
// host left behind. Of the hosts that share a home only one writes; the others
// may see its files a little later, so they look $tries times more, a second
// apart, and list the folder to make the file system look again.
//
// Temporary files of a day ago are of an upload that was cut off.
const lookScript = `
LC_ALL=C; export LC_ALL; umask 077
mkdir -p .plx/blobs && cd .plx/blobs || exit 1
find . -type f -name '.*' -mtime +0 -exec rm -f {} + 2>/dev/null
look() {
	[ -f "$1" ] || return 1
	set -- "$1" "$2" $(ls -ln "$1" 2>/dev/null)
	[ "$7" = "$2" ] || return 1
	touch -c "$1"; chmod 700 "$1"
	printf 'have %s\n' "$1"
}
while read -r sum size; do
	until look "$sum" "$size"; do
		[ "$tries" -gt 0 ] || break
		tries=$((tries - 1)); sleep 1; ls . >/dev/null
	done
done <<'EOF'
`

// look asks a host which blobs it lacks. With shared it waits some seconds for
// them to show up.
func look(ctx context.Context, h Host, blobs []Blob, shared bool) (missing map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, shortLimit)
	defer cancel()
	missing = map[string]bool{}
	command := "tries=0\n"
	if shared {
		command = "tries=5\n"
	}
	command += lookScript
	for _, b := range blobs {
		missing[b.Sum] = true
		command += fmt.Sprintf("%s %d\n", b.Sum, b.Size)
	}
	out, err := script(ctx, h, command+"EOF\n")
	if err != nil {
		return nil, homeTrouble(err)
	}
	for line := range strings.Lines(out) {
		if sum, have := strings.CutPrefix(strings.TrimSpace(line), "have "); have {
			delete(missing, sum)
		}
	}
	return missing, nil
}

// upload sends one blob to a temporary name, has its hash verified and gives
// it its name.
func upload(ctx context.Context, h Host, b Blob, tell func(sent int64)) error {
	content, err := b.open()
	if err != nil {
		return fmt.Errorf("read it here: %w", err)
	}
	defer content.Close() // opened for reading: nothing to lose
	temporary := "." + b.Sum[:16] + "." + rand.Text()
	err = h.Copy(ctx, &telling{r: content, tell: tell}, b.Size, blobFolder+temporary, 0o700)
	if err == nil {
		err = settle(ctx, h, b, temporary)
	} else {
		err = explain(ctx, h, b.Size, err)
	}
	if err != nil {
		tidy(ctx, h, temporary)
	}
	return err
}

// hashScript prints the hash of $temporary, or "no hash" if the host has no
// program for it.
const hashScript = `
LC_ALL=C; export LC_ALL
cd .plx/blobs || exit 1
if command -v sha256sum >/dev/null 2>&1; then sum=$(sha256sum <"$temporary")
elif command -v shasum >/dev/null 2>&1; then sum=$(shasum -a 256 <"$temporary")
elif command -v openssl >/dev/null 2>&1; then sum=$(openssl dgst -sha256 -r <"$temporary")
else sum='no hash'
fi || exit 1
printf '%s\n' "$sum"
`

// settle compares the hash of an upload and renames it. A blob that is there
// by now with the right size stays: it may be running, and on a network file
// system a program whose file is replaced dies.
func settle(ctx context.Context, h Host, b Blob, temporary string) error {
	ctx, cancel := context.WithTimeout(ctx, shortLimit+time.Duration(b.Size/slowest)*time.Second)
	defer cancel()
	sum, err := hashOn(ctx, h, b.Size, temporary)
	if err != nil {
		return fmt.Errorf("verify it: %w", err)
	}
	if sum != b.Sum {
		return fmt.Errorf("verify it: its SHA-256 on the host is %s, not %s: it was damaged on the way, or changed here while it was sent", short(sum), b.Sum)
	}
	_, err = script(ctx, h, fmt.Sprintf(`
LC_ALL=C; export LC_ALL
cd .plx/blobs && chmod 700 %[1]s || exit 1
set -- $(ls -ln %[2]s 2>/dev/null)
if [ "$5" = %[3]d ]; then rm -f %[1]s; else mv -f %[1]s %[2]s; fi
`, temporary, b.Sum, b.Size))
	if err != nil {
		return fmt.Errorf("give it its name: %w", homeTrouble(err))
	}
	return nil
}

// hashOn returns the SHA-256 of a file in the blobs' folder, as the host
// computes it, or from reading the file back if the host cannot.
func hashOn(ctx context.Context, h Host, size int64, name string) (string, error) {
	out, err := script(ctx, h, "temporary="+name+"\n"+hashScript)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(out) != "no hash" {
		sum, _, _ := strings.Cut(strings.TrimSpace(out), " ")
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
	left int64
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
