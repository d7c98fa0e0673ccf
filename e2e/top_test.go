package e2e

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestTop checks that plx top shows a detached job on the whole terminal, on
// the launching machine and on another one. At its end, it must leave the job
// running and restore the terminal.
func TestTop(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	end := filepath.Join(b.shared(), "end")
	file := b.ResourceFile("h1", "h2")
	job := b.detach("--hosts", file, "--ps", "none", "--name", "shown", b.script("s", `for i in $(seq 1000); do echo "step $i/1000 loss: 0.$i"
[ -e `+end+` ] && exit; [ $RANK = 0 ] && sleep 0.1; sleep 0.1; done`))
	hosts := `h1 +cpu +\d+% .*mem +\d+% +in .* out .*h2 +cpu +\d+% .*mem +\d+% +in .* out `
	training := `running \d+s \| step \d+/1000 \| loss 0\.\d+.*` + hosts + `.*slowest: worker:0 on h1, [12]\.\d times the median.*worker:1 h2 +moves`
	for _, way := range []struct {
		b    *bench
		want string
		args []string
	}{
		{b.in(t), training, []string{"top"}},
		{b.in(t).elsewhere(), training, []string{"top", "--hosts", file, job}},
		{b.in(t), `plx top 2 hosts.*` + hosts, []string{"top", "--hosts", file}},
	} {
		sized, shown := false, regexp.MustCompile(`(?s)`+way.want)
		text := onTerminal(way.b, 0, func(seen string, terminal io.Writer) bool {
			if !sized {
				size := unix.Winsize{Row: 30, Col: 100}
				if err := unix.IoctlSetWinsize(int(terminal.(*os.File).Fd()), unix.TIOCSWINSZ, &size); err != nil {
					t.Fatal(err)
				}
				sized = true
			}
			if !shown.MatchString(rendered(seen)) {
				return false
			}
			terminal.Write([]byte("q"))
			return true
		}, way.args...)
		for _, pair := range [][2]string{{"\x1b[?1049h", "\x1b[?1049l"}, {"\x1b[?25l", "\x1b[?25h"}} {
			if on, off := strings.LastIndex(text, pair[0]), strings.LastIndex(text, pair[1]); on < 0 || off < on {
				t.Errorf("%q: %q is not undone", way.args, pair[0])
			}
		}
	}
	contains(t, b.want(2, "top", job).stderr, "plx top needs a terminal", "plx status --json")
	put(t, end, "", 0o644)
	b.want(0, "attach", job)
	b.hostsGone(0)
}
