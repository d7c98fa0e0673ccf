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

// amdTools are AMD's tools, with the section of their list of GPUs.
var amdTools = []struct {
	tool Tool
	list string
	read func(sections) (gpus []GPU, ok bool)
}{
	{ToolAMD, "amd-list", readAMDSMI},
	{ToolROCm, "rocm", readROCmSMI},
}

// readAMD fills in the GPUs of AMD.
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
		case all.has("kfd"): // else it is the tool of a machine image, on a machine without a GPU
			notes := clean(strings.Join(list.lines, "; "))
			r.GPUTool, r.GPUError = ToolBroken, fmt.Sprintf("%s failed with status %s: %s", t.tool, list.status, cmp.Or(notes, "it printed nothing"))
		}
	}
	if !asked && all.has("kfd") {
		r.GPUError = "it has an AMD GPU (/dev/kfd) and no tool that lists it: install rocm-smi or amd-smi there (packages rocm-smi-lib, amd-smi-lib; plx looks on PATH and in /opt/rocm/bin), or write cpu after the host if no worker is to use it"
	}
}

// object is a JSON object of a tool. Its keys differ in their case between versions.
type object map[string]any

// decoded returns the first JSON value in lines; before it may be warnings.
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

// at returns the value under keys, one in another, nil if there is none.
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

// text returns a string or a number under keys, cleaned; "" if the tool does not know it.
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

// units are those of amounts, in MiB.
var units = map[string]float64{"B": 1.0 / (1 << 20), "KB": 1.0 / (1 << 10), "MB": 1, "GB": 1 << 10, "%": 1}

// amount returns a number under keys, in MiB or per cent. It stands there alone, in the unit
// given, as "16 MB", or as an object with its value and unit.
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

// ordinal returns a number that is no less than 0 under keys, else Unknown.
func (o object) ordinal(keys ...string) int {
	n, err := strconv.Atoi(o.text(keys...))
	if err != nil || n < 0 {
		return Unknown
	}
	return n
}

var hexadecimal = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^0x[0-9a-fA-F]{1,16}$`) })

// amdUUID makes the UUID that AMD's runtime takes of a number that the driver has for the
// GPU; "" if it has none.
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

// amdName is the first of names that is no number of a model.
func amdName(names ...string) string {
	for _, name := range names {
		if name != "" && !strings.HasPrefix(name, "0x") {
			return name
		}
	}
	return ""
}

// amdGPUs puts GPUs in index order. order has for each the place that the runtime gives it;
// Unknown: the tool does not tell. Parts of one GPU have its UUID, which names none of them.
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

// readROCmSMI reads what rocm-smi prints: an object for each card and one for the system,
// with the processes in it. ok is false if it printed no such thing.
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
		index, _ := strconv.Atoi(found[1]) // four digits at most
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

// placeROCm gives the processes to their GPUs. rocm-smi tells how many GPUs a process uses and
// the kernel how much memory of which. If the kernel does not tell, those GPUs count that are
// in use.
func placeROCm(gpus []GPU, system object, byGUID map[string]int, all sections) {
	users := owners(all)
	on := map[int][]int{} // indices of GPUs by process
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

// rocmProcess reads "name, GPUs, bytes of memory, ..."; the name may hold commas.
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

// perGPU returns the objects of a list of GPUs by their index. Newer versions of amd-smi wrap
// the list in an object.
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

// readAMDSMI reads what amd-smi prints. ok is false if it printed no list of GPUs.
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

// amdProcesses reads a GPU's list of processes. In place of the list, or of a process in it,
// may be a sentence that there are none.
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
