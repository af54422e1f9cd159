package activities

// Running is how many attempts of s are under way.
func Running(s *Steps) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}
