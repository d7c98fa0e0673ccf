package gpuprobe

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

func tableRows(t *testing.T) []Row {
	return []Row{
		{Host: "gpu02", Report: answerOf(t, "busy-570")},
		{Host: "down", Err: errors.New("host down: dial 10.0.0.9:22: i/o timeout\nafter three tries")},
		{Host: "alice@gpu01:2222", Report: answerOf(t, "mig-535")},
		{Host: "cpu01", Report: answerOf(t, "no-gpu")},
		{Host: "sick", Report: answerOf(t, "mismatch-550")},
		{Host: "reset", Report: answerOf(t, "needs-reset-580")},
		{Host: "short", Report: answerOf(t, "unified-580"), Unmet: errors.New("h.txt:7: host short: no GPU 7:\nthe host has 0")},
	}
}

func TestTables(t *testing.T) { compareTable(t, "testdata/table.txt", tableRows(t)) }

func compareTable(t *testing.T, golden string, rows []Row) {
	t.Helper()
	hosts, gpus, notes := Tables(rows)
	var b strings.Builder
	for _, cells := range slices.Concat(hosts, gpus) {
		b.WriteString(strings.Join(cells, " | ") + "\n")
	}
	b.WriteString(strings.Join(notes, "\n") + "\n")
	want, err := os.ReadFile(golden) // read the old content before -update writes, so that a run that changes the file fails
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestTablesWithoutRows(t *testing.T) {
	if hosts, gpus, notes := Tables(nil); len(hosts) != 1 || len(gpus) != 1 || len(notes) != 0 {
		t.Errorf("%q %q %q", hosts, gpus, notes)
	}
}
