package expr

import "strings"

// Nearest is the one of names that is most like name, by edit distance without
// regard to case, or "" where none is alike.
func Nearest(name string, names []string) string {
	best, distance := "", max(1, len(name)/3)+1
	for _, n := range names {
		if abs(len(n)-len(name)) >= distance {
			continue
		}
		if d := editDistance(strings.ToLower(name), strings.ToLower(n)); d < distance && d < len(name) {
			best, distance = n, d
		}
	}
	return best
}

func abs(n int) int { return max(n, -n) }

// editDistance counts the insertions, deletions, replacements and swaps of
// neighbours that lead from a to b.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
