package ssh

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

// byShell sends the file through a command, for a host whose sftp does not work: a
// start-up file that prints breaks it.
func (u *upload) byShell(ctx context.Context) error {
	u.created.Store(true)
	temporary, to := Quote(withFolder(u.temporary)), Quote(withFolder(u.to))
	// umask first: the content may be secret. The shell's noclobber makes the creation
	// exclusive. Some wc print blanks before the size.
	script := fmt.Sprintf(`LC_ALL=C; export LC_ALL
set -e
umask 077
set -C
: > %[1]s
set +C
cat > %[1]s
size=$(wc -c < %[1]s | tr -d ' ')
if [ "$size" != %[3]d ]; then echo "$size bytes arrived of %[3]d" >&2; exit 1; fi
chmod %[4]o %[1]s
if [ -d %[2]s ]; then echo "is a directory" >&2; exit 1; fi
mv -f %[1]s %[2]s`, temporary, to, u.size, u.mode)
	var stderr message
	err := u.client.Run(ctx, script, u.r, nil, &stderr)
	if err == nil {
		u.created.Store(false)
		return nil
	}
	if text := strings.TrimSpace(stderr.String()); text != "" {
		if cause := causeIn(text); cause != nil {
			return fmt.Errorf("%w: %s: %w", err, text, cause)
		}
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// withFolder keeps a name that begins with "-" from being an option.
func withFolder(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return "./" + name
}

// message keeps the first KiB that is written to it.
type message struct{ bytes.Buffer }

func (t *message) Write(p []byte) (int, error) {
	if room := 1024 - t.Len(); room > 0 {
		t.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
