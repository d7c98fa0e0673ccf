//go:build linux

package supervisor

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// fullDisk is a writer that accepts room bytes and then fails, until the test
// raises room.
type fullDisk struct {
	buf  bytes.Buffer
	room int
}

func (d *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.room -= n
	d.buf.Write(p[:n])
	if n < len(p) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

func (d *fullDisk) Close() error { return nil }

func TestFullDiskDropsOutputWithoutBlocking(t *testing.T) {
	disk := &fullDisk{room: 4}
	var mu sync.Mutex
	var told []string
	o, task, err := newOutput("worker:0 stdout", disk, func(s string) { mu.Lock(); defer mu.Unlock(); told = append(told, s) }, func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	o.keep([]byte("abcdef")) // as run calls it
	o.keep([]byte("ghi"))
	disk.room = 1000
	o.keep([]byte("jkl"))
	go o.run()
	if _, err := task.WriteString("mno"); err != nil {
		t.Error(err)
	}
	task.Close()
	<-o.done
	if err := o.close(time.Now()); err != nil {
		t.Error(err)
	}
	if got, want := disk.buf.String(), "abcd\nplx: 5 bytes are missing here: the disk was full\njklmno"; got != want {
		t.Errorf("spool %q, want %q", got, want)
	}
	if len(told) != 2 || !strings.Contains(told[0], "no space") || !strings.Contains(told[1], "5 bytes") {
		t.Errorf("told %q", told)
	}
	if got := o.lastLines(); got != "abcdefghijklmno" {
		t.Errorf("tail %q", got)
	}
}

func TestCloseInterruptsAPendingRead(t *testing.T) {
	o, task, err := newOutput("worker:0 stdout", &fullDisk{room: 100}, func(string) {}, func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	defer task.Close() // keeps the write end open until the test ends
	go o.run()
	if err := o.close(time.Now()); err != nil {
		t.Error(err)
	}
}
