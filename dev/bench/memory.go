package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// residentTree is how many bytes of memory a process and its children hold.
func residentTree(pid int) (int64, error) {
	total, err := resident(pid)
	if err != nil {
		return 0, err
	}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return 0, fmt.Errorf("reading %s: %w", list, err)
			}
			bytes, err := residentTree(child)
			if err != nil {
				return 0, err
			}
			total += bytes
		}
	}
	return total, nil
}

func resident(pid int) (int64, error) {
	file := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("measuring memory (Linux only): %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("reading %s: %w", file, err)
			}
			return kilobytes << 10, nil
		}
	}
	return 0, fmt.Errorf("reading %s: it names no resident memory", file)
}
