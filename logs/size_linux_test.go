package logs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A Display has the size of its terminal. An output that is no terminal, or
// has no size, counts as 80 columns and 24 rows.
func TestDisplayHasSizeOfTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		screen                  *os.File
		columns, rows           uint16
		wantColumns, wantHeight int
	}{{terminal, 132, 43, 132, 43}, {terminal, 132, 0, 80, 24}, {terminal, 0, 43, 80, 24}, {file, 0, 0, 80, 24}} {
		if c.screen == terminal {
			if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: c.rows, Col: c.columns}); err != nil {
				t.Fatal(err)
			}
		}
		d := NewDisplay(Screen{Writer: c.screen, Terminal: true}, Screen{Writer: c.screen})
		if w, h := d.size(); w != c.wantColumns || h != c.wantHeight {
			t.Errorf("%d times %d: got %d times %d", c.columns, c.rows, w, h)
		}
	}
}
