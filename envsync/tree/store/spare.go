//go:build linux

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync/tree"
)

// Spare is a folder that was made ahead of the next Build, which takes it and makes only
// what differs. Nothing else ever writes in it.
//
//	ready/tree     the folder
//	ready/record   its manifest, and the boot of the host during which it was made
//	making/        the next one, until it is complete
//	lock           held by the process that makes it
//
// A spare folder of another boot is not used, since a power cut may have damaged it. So
// nothing is flushed. Nor is a folder used in which anything has changed since its record
// was written, by the inodes' change times.
type Spare struct {
	store *Store
	dir   string // "": there is none, and none is made
}

// Spare returns the spare folder in dir, which need not exist.
func (s *Store) Spare(dir string) Spare { return Spare{s, dir} }

func (p Spare) ready() string  { return filepath.Join(p.dir, "ready") }
func (p Spare) making() string { return filepath.Join(p.dir, "making") }

const (
	recordName = "record"
	treeName   = "tree"
)

// ErrBusy says that another process makes the spare folder.
var ErrBusy = errors.New("another process makes the spare folder")

// Lock makes sure that no other process makes the spare folder, until unlock.
func (p Spare) Lock() (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(p.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = again(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrBusy
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// plenty is how many times a spare folder would fit into what is left of its file system.
const plenty = 10

// Make makes the spare folder of a manifest. It removes one of another manifest first, and
// what is left of one that was not completed. It makes none if another process does, or if
// the file system has little room. An error leaves none.
func (p Spare) Make(ctx context.Context, id tree.Sum) (err error) {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	unlock, err := p.Lock()
	if errors.Is(err, ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if was, err := p.record(p.ready()); err == nil && was == id {
		return nil
	}
	if err := p.clear(); err != nil {
		return err
	}
	m, err := p.store.Manifest(id)
	if err != nil || !p.fits(m) || bootID() == "" {
		return err
	}
	if err := p.fill(ctx, id, m); err != nil {
		return errors.Join(err, os.RemoveAll(p.making()))
	}
	return nil
}

// clear removes the folder that is ready, and what is left of another one.
func (p Spare) clear() error {
	if err := os.RemoveAll(p.making()); err != nil {
		return err
	}
	// Under another name first: Build takes no folder of which a part is removed.
	err := os.Rename(p.ready(), p.making())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, os.RemoveAll(p.making()))
}

// fits reports whether the file system has plenty of room and of inodes.
func (p Spare) fits(m tree.Manifest) bool {
	var disk unix.Statfs_t
	if err := unix.Statfs(p.dir, &disk); err != nil || disk.Bsize <= 0 {
		return false
	}
	_, size := m.Files()
	inodes := disk.Files == 0 || disk.Ffree/plenty >= uint64(len(m.Entries)) // 0: the file system makes them as needed
	return inodes && int64(disk.Bavail)*disk.Bsize/plenty >= size
}

func (p Spare) fill(ctx context.Context, id tree.Sum, m tree.Manifest) error {
	b := &builder{store: p.store, dir: filepath.Join(p.making(), treeName)}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	if err := b.fill(ctx, m.Entries); err != nil {
		return err
	}
	if err := seal(ctx, filepath.Join(p.making(), recordName), fmt.Sprintln(bootID(), id)); err != nil {
		return err
	}
	return os.Rename(p.making(), p.ready())
}

// tickTime bounds the wait for a change time that is later than the one before. Some file
// systems count whole seconds.
const tickTime = 5 * time.Second

// seal writes a record whose change time is later than that of any change before the call.
// So what changes later has that change time or a later one.
func seal(ctx context.Context, file, text string) error {
	var first time.Time
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		now := changeTime(info)
		if first.IsZero() {
			first = now
		}
		if now.After(first) {
			return nil
		}
		if ctx.Err() != nil || time.Since(begun) > tickTime {
			return cmp.Or(context.Cause(ctx), errors.New("the clock of the file system stands still"))
		}
	}
}

var errNotUsed = errors.New("the spare folder is not used")

// record returns the manifest of the spare folder at dir, if it was made since this host
// was booted.
func (p Spare) record(dir string) (id tree.Sum, err error) {
	text, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return id, err
	}
	words := strings.Fields(string(text))
	if len(words) != 2 || words[0] != bootID() {
		return id, errNotUsed
	}
	return tree.ParseSum(words[1])
}

// bootID names the time since this host was booted. It is "" if the kernel does not tell.
var bootID = sync.OnceValue(func() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // unread, it is empty
	return strings.TrimSpace(string(text))
})

// take moves the spare folder to the place of temporary, an empty folder, and changes it
// into that of m, whose name is want. It returns where in temporary that is. An error
// leaves the rest to the caller.
func (p Spare) take(ctx context.Context, want tree.Sum, m tree.Manifest, temporary string) (string, error) {
	id, err := p.record(p.ready())
	if err != nil {
		return temporary, err
	}
	was, err := p.store.Manifest(id)
	if err != nil {
		return temporary, err
	}
	var d difference
	if id != want {
		d = compare(was, m)
	}
	if len(d.remove) > len(was.Entries)/2 {
		return temporary, errNotUsed // to make all takes less time
	}
	// From here on no other process takes or removes it. It may be another one already.
	if err := unix.Rename(p.ready(), temporary); err != nil {
		return temporary, err
	}
	if now, err := p.record(temporary); err != nil || now != id {
		return temporary, errors.Join(err, errNotUsed)
	}
	dir := filepath.Join(temporary, treeName)
	if err := unchanged(ctx, dir, was, filepath.Join(temporary, recordName)); err != nil {
		return temporary, err
	}
	return dir, d.apply(ctx, &builder{store: p.store, dir: dir})
}

// unchanged checks that a folder is as its manifest says, and that nothing in it has
// changed after its record was written.
func unchanged(ctx context.Context, dir string, m tree.Manifest, record string) error {
	var last, now unix.Stat_t
	if err := unix.Lstat(record, &last); err != nil {
		return err
	}
	folder, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(folder) // only read
	written := time.Unix(last.Ctim.Unix())
	unmoved := func(p string) error {
		err := again(func() error { return unix.Fstatat(folder, p, &now, unix.AT_SYMLINK_NOFOLLOW) })
		if err == nil && !time.Unix(now.Ctim.Unix()).Before(written) {
			err = errNotUsed
		}
		return err
	}
	if err := unmoved("."); err != nil {
		return err
	}
	for _, e := range m.Entries {
		if err := cmp.Or(ctx.Err(), unmoved(e.Path)); err != nil {
			return err
		}
		right := false
		switch now.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			right = e.Kind == tree.Directory
		case unix.S_IFLNK:
			right = e.Kind.IsLink()
		case unix.S_IFREG:
			right = e.Kind == tree.File && now.Size == e.Size && now.Mode&0o777 == uint32(e.Mode)
		}
		if !right {
			return errNotUsed
		}
	}
	return nil
}

// difference is what changes the folder of a manifest into that of another one.
type difference struct {
	remove []tree.Entry // in this order: what is in a folder before the folder
	make   []tree.Entry
}

func compare(was, want tree.Manifest) (d difference) {
	before, after := byPath(was), byPath(want)
	for _, e := range was.Entries {
		if after[e.Path] != e {
			d.remove = append(d.remove, e)
		}
	}
	slices.Reverse(d.remove)
	for _, e := range want.Entries {
		if before[e.Path] != e {
			d.make = append(d.make, e)
		}
	}
	return d
}

func byPath(m tree.Manifest) map[string]tree.Entry {
	all := make(map[string]tree.Entry, len(m.Entries))
	for _, e := range m.Entries {
		all[e.Path] = e
	}
	return all
}

// apply fails for a folder whose permissions alone differ, unless it is empty.
func (d difference) apply(ctx context.Context, b *builder) error {
	for _, e := range d.remove {
		if err := os.Remove(b.path(e)); err != nil {
			return err
		}
	}
	return b.fill(ctx, d.make)
}
