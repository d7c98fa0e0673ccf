package gpuprobe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// amdTools lists AMD's command-line tools in the order in which plx tries
// their output. The script that probes a host prints the output of each tool
// in a named section; the field list is the name of the section with the
// tool's list of GPUs.
var amdTools = []struct {
	tool Tool
	list string
	read func(sections) (gpus []GPU, ok bool)
}{
	{ToolAMD, "amd-list", readAMDSMI},
	{ToolROCm, "rocm", readROCmSMI},
}

// readAMD adds the AMD GPUs of a host to its Report.
//
// TODO: run this on a host with an AMD GPU. The tests only parse output that
// follows the source code of amd-smi and rocm-smi, and output that users have
// published.
func readAMD(r *Report, all sections, limit time.Duration) {
	r.GPUTool, r.Visible = ToolNone, all.first("rocr-visible")
	asked := false
	for _, t := range amdTools {
		if !all.has(t.list) {
			continue
		}
		asked = true
		list := all.find(t.list)
		gpus, ok := t.read(all)
		switch {
		case list.status == "late":
			r.GPUTool, r.GPUError = ToolHung, fmt.Sprintf("%s did not answer within %gs", t.tool, limit.Seconds())
		case ok:
			r.GPUs, r.GPUTool, r.GPUError = gpus, t.tool, ""
			r.Driver = all.first("amdgpu")
			return
		case all.has("kfd"): // Without the device /dev/kfd the host has no AMD GPU. The tool is then only a part of the machine image.
			notes := clean(strings.Join(list.lines, "; "))
			r.GPUTool, r.GPUError = ToolBroken, fmt.Sprintf("%s failed with status %s: %s", t.tool, list.status, cmp.Or(notes, "it printed nothing"))
		}
	}
	if !asked && all.has("kfd") {
		r.GPUError = "it has an AMD GPU (/dev/kfd) and no tool that lists it: install rocm-smi or amd-smi there (packages rocm-smi-lib, amd-smi-lib; plx looks on PATH and in /opt/rocm/bin), or write cpu after the host if no worker is to use it"
	}
}

// object is a JSON object that a tool printed. Its methods ignore the case of
// keys, which differs between versions of the tools.
type object map[string]any

// decoded returns the first JSON value in lines, or nil. It skips warnings
// that a tool may print before the value.
func decoded(lines []string) (value any) {
	i := slices.IndexFunc(lines, func(line string) bool {
		line = strings.TrimSpace(line)
		return strings.HasPrefix(line, "{") || line == "[" || strings.HasPrefix(line, "[{") || line == "[]"
	})
	if i < 0 {
		return nil
	}
	decoder := json.NewDecoder(strings.NewReader(strings.Join(lines[i:], "\n")))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil
	}
	return value
}

// at returns the value at a path of nested keys, or nil if the object has no
// such value.
func (o object) at(keys ...string) any {
	var value any = map[string]any(o)
	for _, key := range keys {
		inner, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = nil
		for _, name := range slices.Sorted(maps.Keys(inner)) {
			if strings.EqualFold(name, key) {
				value = inner[name]
				break
			}
		}
	}
	return value
}

// text returns the string or number at a path of keys, made safe for a
// terminal. It returns "" if the tool printed N/A or a similar text.
func (o object) text(keys ...string) string {
	var s string
	switch v := o.at(keys...).(type) {
	case string:
		s = clean(v)
	case json.Number:
		s = clean(v.String())
	}
	switch strings.ToUpper(s) {
	case "N/A", "UNKNOWN", "NONE":
		return ""
	}
	return s
}

// units maps each unit of memory to the factor that converts it to MiB. A
// value in per cent stays unchanged.
var units = map[string]float64{"B": 1.0 / (1 << 20), "KB": 1.0 / (1 << 10), "MB": 1, "GB": 1 << 10, "%": 1}

// amount returns the number at a path of keys, in MiB or per cent, or Unknown
// if there is none. The value may be a number in the given unit, a string such
// as "16 MB", or an object with value and unit.
func (o object) amount(unit string, keys ...string) int {
	field := o.text(keys...)
	if inner, ok := o.at(keys...).(map[string]any); ok {
		field = object(inner).text("value") + " " + object(inner).text("unit")
	}
	number, own, _ := strings.Cut(field, " ")
	n, err := strconv.ParseFloat(number, 64)
	factor := units[strings.ToUpper(cmp.Or(own, unit))]
	if n *= factor; err != nil || !(n >= 0 && n < 1<<40) || factor == 0 {
		return Unknown
	}
	return int(n)
}

// ordinal returns the non-negative integer at a path of keys, or Unknown if
// there is none.
func (o object) ordinal(keys ...string) int {
	n, err := strconv.Atoi(o.text(keys...))
	if err != nil || n < 0 {
		return Unknown
	}
	return n
}

var hexadecimal = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^0x[0-9a-fA-F]{1,16}$`) })

// amdUUID converts the GPU's serial number, as the driver reports it, to the
// UUID that AMD's runtime uses. It returns "" if serial is not a valid number.
func amdUUID(serial string) string {
	if !hexadecimal().MatchString(serial) {
		return ""
	}
	n, err := strconv.ParseUint(serial[2:], 16, 64)
	if err != nil || n == 0 {
		return ""
	}
	return fmt.Sprintf("GPU-%016x", n)
}

// amdName returns the first of names that is a text and not a hexadecimal
// model number.
func amdName(names ...string) string {
	for _, name := range names {
		if name != "" && !strings.HasPrefix(name, "0x") {
			return name
		}
	}
	return ""
}

// amdGPUs sorts gpus by index and sets their RuntimeID. order maps the index
// of each GPU to the position at which AMD's runtime lists the GPU, or to
// Unknown. Partitions of one GPU share a UUID, so amdGPUs removes UUIDs that
// are not unique.
func amdGPUs(gpus []GPU, order map[int]int) []GPU {
	slices.SortFunc(gpus, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	places := slices.Sorted(maps.Values(order))
	distinct := len(slices.Compact(slices.Clone(places))) == len(gpus) && !slices.Contains(places, Unknown)
	count := map[string]int{}
	for _, g := range gpus {
		count[g.UUID]++
	}
	for i := range gpus {
		g := &gpus[i]
		if count[g.UUID] > 1 {
			g.UUID = ""
		}
		if place, _ := slices.BinarySearch(places, order[g.Index]); distinct && place != g.Index {
			g.RuntimeID = strconv.Itoa(place)
		}
	}
	return gpus
}

var (
	card = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^card([0-9]{1,4})$`) })
	pidK = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^PID([1-9][0-9]{0,9})$`) })
)

// readROCmSMI parses the JSON output of rocm-smi: an object for each card, and
// an object "system" that lists the processes. ok is false if the probe's
// output contains no output of rocm-smi.
func readROCmSMI(all sections) (gpus []GPU, ok bool) {
	whole, ok := decoded(all.find("rocm").lines).(map[string]any)
	if !ok {
		return nil, false
	}
	order, byGUID := map[int]int{}, map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(whole)) {
		found := card().FindStringSubmatch(key)
		fields, isObject := whole[key].(map[string]any)
		if found == nil || !isObject {
			continue
		}
		index, _ := strconv.Atoi(found[1]) // cannot fail: the pattern allows at most four digits
		if _, twice := order[index]; twice || index > maxIndex {
			continue
		}
		o := object(fields)
		order[index] = o.ordinal("Node ID")
		if guid := o.text("GUID"); guid != "" {
			byGUID[guid] = index
		}
		gpus = append(gpus, GPU{
			Index: index, UUID: amdUUID(o.text("Unique ID")), PCIBusID: canonicalBus(o.text("PCI Bus")),
			Name:           amdName(o.text("Device Name"), o.text("Card Series"), o.text("Card Model")),
			MemoryTotalMiB: o.amount("B", "VRAM Total Memory (B)"), MemoryUsedMiB: o.amount("B", "VRAM Total Used Memory (B)"),
			UtilizationPercent: o.amount("%", "GPU use (%)"), ComputeCapability: o.text("GFX Version"),
		})
	}
	gpus = amdGPUs(gpus, order)
	system, _ := object(whole).at("system").(map[string]any)
	placeROCm(gpus, object(system), byGUID, all)
	return gpus, true
}

// placeROCm assigns the processes to their GPUs. rocm-smi reports only the
// number of GPUs that a process uses. The kernel reports how much memory a
// process uses on each GPU. If the kernel reports nothing about a process,
// placeROCm assigns the process to every GPU that is in use.
func placeROCm(gpus []GPU, system object, byGUID map[string]int, all sections) {
	users := owners(all)
	on := map[int][]int{} // maps a process id to the indices of the GPUs whose memory the process uses
	for _, line := range all.find("kfd-memory").lines {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] == "0" {
			continue
		}
		pid, err := strconv.Atoi(f[0])
		if index, known := byGUID[f[1]]; known && err == nil {
			on[pid] = append(on[pid], index)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(system)) {
		found := pidK().FindStringSubmatch(key)
		if found == nil {
			continue
		}
		pid, err := strconv.Atoi(found[1])
		if err != nil {
			continue
		}
		p := rocmProcess(pid, system.text(key))
		if p.Name != "" {
			p.User = users[pid]
		}
		for i := range gpus {
			g := &gpus[i]
			busy := g.MemoryUsedMiB > BusyMemoryMiB || g.UtilizationPercent >= BusyUtilizationPercent
			if on[pid] == nil && (busy || len(gpus) == 1) || slices.Contains(on[pid], g.Index) {
				g.Processes = append(g.Processes, p)
			}
		}
	}
}

// rocmProcess parses rocm-smi's text for one process: "name, GPUs, bytes of
// memory, ...". The name may contain commas.
func rocmProcess(pid int, text string) Process {
	p := Process{PID: pid, MemoryMiB: Unknown}
	f := strings.Split(text, ", ")
	for i := 1; i+1 < len(f); i++ {
		_, err := strconv.Atoi(f[i])
		bytes, bytesErr := strconv.ParseInt(f[i+1], 10, 64)
		if err != nil && f[i] != "UNKNOWN" {
			continue
		}
		if f = f[:i]; bytesErr == nil && bytes >= 0 {
			p.MemoryMiB = int(bytes >> 20)
		}
		break
	}
	if name := strings.Join(f, ", "); !strings.EqualFold(name, "unknown") {
		p.Name = name
	}
	return p
}

// perGPU parses a JSON list of GPUs that amd-smi printed, and returns its
// objects by GPU index. In newer versions of amd-smi the list is a member of
// an object.
func perGPU(lines []string) (all map[int]object, ok bool) {
	value := decoded(lines)
	if wrapped, isObject := value.(map[string]any); isObject {
		value = nil
		for _, name := range slices.Sorted(maps.Keys(wrapped)) {
			if inner, isList := wrapped[name].([]any); isList {
				value = inner
				break
			}
		}
	}
	list, ok := value.([]any)
	all = map[int]object{}
	for _, item := range list {
		fields, isObject := item.(map[string]any)
		if index := object(fields).ordinal("gpu"); isObject && index >= 0 && index <= maxIndex {
			all[index] = fields
		}
	}
	return all, ok
}

// readAMDSMI parses the JSON output of amd-smi. ok is false if the output
// contains no list of GPUs.
func readAMDSMI(all sections) (gpus []GPU, ok bool) {
	list, ok := perGPU(all.find("amd-list").lines)
	if !ok {
		return nil, false
	}
	static, _ := perGPU(all.find("amd-static").lines)
	metric, _ := perGPU(all.find("amd-metric").lines)
	apps, _ := perGPU(all.find("amd-apps").lines)
	users := owners(all)
	order := map[int]int{}
	for _, index := range slices.Sorted(maps.Keys(list)) {
		l, s, m := list[index], static[index], metric[index]
		order[index] = l.ordinal("node_id")
		if hip := l.ordinal("hip_id"); hip != Unknown {
			order[index] = hip
		}
		uuid := amdUUID(s.text("asic", "asic_serial"))
		if own, isHIP := strings.CutPrefix(l.text("hip_uuid"), "GPU-"); isHIP {
			uuid = cmp.Or(amdUUID("0x"+own), uuid)
		}
		g := GPU{
			Index: index, UUID: uuid, PCIBusID: canonicalBus(cmp.Or(l.text("bdf"), s.text("bus", "bdf"))),
			Name:               amdName(s.text("asic", "market_name"), s.text("board", "product_name")),
			MemoryTotalMiB:     s.amount("MB", "vram", "size"),
			MemoryUsedMiB:      m.amount("MB", "mem_usage", "used_vram"),
			UtilizationPercent: m.amount("%", "usage", "gfx_activity"),
			ComputeCapability:  s.text("asic", "target_graphics_version"),
			Driver:             s.text("driver", "version"),
			Processes:          amdProcesses(apps[index], users),
		}
		if g.MemoryTotalMiB == Unknown {
			g.MemoryTotalMiB = m.amount("MB", "mem_usage", "total_vram")
		}
		gpus = append(gpus, g)
	}
	return amdGPUs(gpus, order), true
}

// amdProcesses parses the list of processes of one GPU. If there are no
// processes, amd-smi prints a sentence instead of the list or instead of an
// element. amdProcesses skips this sentence.
func amdProcesses(o object, users map[int]string) (found []Process) {
	list, _ := o.at("process_list").([]any)
	for _, item := range list {
		fields, _ := item.(map[string]any)
		if inner, wrapped := object(fields).at("process_info").(map[string]any); wrapped {
			fields = inner
		}
		entry := object(fields)
		p := Process{PID: entry.ordinal("pid"), Name: entry.text("name"), MemoryMiB: entry.amount("B", "memory_usage", "vram_mem")}
		if p.PID <= 0 {
			continue
		}
		if p.MemoryMiB == Unknown {
			p.MemoryMiB = entry.amount("B", "mem_usage")
		}
		if p.Name != "" {
			p.User = users[p.PID]
		}
		found = append(found, p)
	}
	return found
}
